"""Images of a run: stored once, found by id, given to branches; links are never followed."""

import hashlib
from pathlib import Path

import pytest

from engine.protocol.problems import StoreError
from engine.storage.run_folder.images import FOLDER, ImageStore, media_type

PNG, GIF = b"\x89PNG\r\n\x1a\n" + bytes(8), b"GIF89a" + bytes(8)
WEBP, JPEG = b"RIFF\0\0\0\0WEBP" + bytes(8), b"\xff\xd8\xff\xe0" + bytes(8)


def test_image_is_stored_once_under_its_hash(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    kinds = {PNG: "image/png", GIF: "image/gif", WEBP: "image/webp", JPEG: "image/jpeg"}
    for content, kind in kinds.items():
        name = store.add(content)
        assert name == hashlib.sha256(content).hexdigest()
        assert store.add(content) == name
        assert store.find(name).read_bytes() == content
        assert media_type(store.find(name)) == kind
    assert len(list(tmp_path.glob("images/*"))) == 4


def test_what_is_no_image_or_not_the_wanted_one_is_refused(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    for content in (b"", b"<svg/>", b"BM" + bytes(20), b"RIFF\0\0\0\0WAVE"):
        with pytest.raises(ValueError, match="neither PNG"):
            store.add(content)
    with pytest.raises(StoreError, match="has no image"):
        store.add(PNG, "0" * 64)
    assert not (tmp_path / FOLDER).exists()


@pytest.mark.parametrize("name", ["0" * 64, "", "../run", "a/b", f"{'0' * 64}.png", "A" * 64])
def test_unknown_image_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / FOLDER).mkdir()
    with pytest.raises(StoreError, match="has no image"):
        ImageStore(tmp_path).find(name)


def test_link_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(PNG)
    run = tmp_path / "run"
    (run / FOLDER).mkdir(parents=True)
    (run / FOLDER / f"{'0' * 64}.png").symlink_to(secret)
    with pytest.raises(StoreError, match="has no image"):
        ImageStore(run).find("0" * 64)
    ImageStore(run).copy_to(tmp_path)
    assert not (tmp_path / FOLDER).exists()


def test_branch_gets_the_images_without_the_inputs(tmp_path: Path) -> None:
    run, branch = tmp_path / "run", tmp_path / "branch"
    run.mkdir()
    branch.mkdir()
    store = ImageStore(run)
    ImageStore(run).copy_to(branch)
    assert not (branch / FOLDER).exists()
    name = store.add(PNG)
    inputs = store.inputs(name, "f" * 16)
    inputs.parent.mkdir()
    inputs.write_bytes(b"x")
    (run / FOLDER / "notes.txt").write_text("not an image")
    store.copy_to(branch)
    assert [file.name for file in (branch / FOLDER).iterdir()] == [f"{name}.png"]
    store.drop_inputs("e" * 16)
    assert inputs.exists()
    store.drop_inputs("f" * 16)
    assert not inputs.exists()
    assert ImageStore(branch).find(name).read_bytes() == PNG
