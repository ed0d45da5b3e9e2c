"""Validation of paths, ids and hashes received from another process."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from engine.protocol.identifiers import (
    FileName,
    RelativePath,
    RunId,
    Sha256,
    check_name,
    check_path,
    is_run_id,
)
from engine.protocol.requests.sync import FileEntry
from engine.runtime.ids import ulid

PATH, NAME = TypeAdapter(RelativePath), TypeAdapter(FileName)
RUN, HASH = TypeAdapter(RunId), TypeAdapter(Sha256)
BAD_PATHS = (
    "",
    ".",
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "/etc/passwd",
    "//x",
    "a//b",
    "a/",
    "./a",
    "~/x",
    "~root/x",
    "C:/x",
    "c:x",
    "a\\b",
    "..\\x",
    "a\0b",
    "a\nb",
    "a\x1b]0;x\x07",
    "a\x9bb",
    "a\u202eb",
    "a\u200bb",
    "a\u2028b",
    "a\ud800b",
    "nul",
    "NUL.txt",
    "a/com1.log",
    "name.",
    "name ",
    ".git/hooks/pre-commit",
    "a/.GIT/config",
    "a/.g\u200cit/config",
    "a" * 256,
    "ä" * 128,
    "a/" * 40 + "a",
    "a/" * 512 + "a",
)
GOOD_PATHS = (
    "run.json",
    "checkpoints/step-000002/adapter/adapter_model.safetensors",
    "logs/run.log",
    "Ärger/日本語 – 1.txt",
    "12:00.json",
    ".gitignore",
    "a..b/...c",
    "~a/b"[1:],
)


@pytest.mark.parametrize("path", BAD_PATHS)
def test_bad_path_is_rejected_on_parsing(path: str) -> None:
    with pytest.raises(ValidationError):
        PATH.validate_python(path)
    with pytest.raises(ValidationError):
        FileEntry(path=path, bytes=0, sha256="0" * 64)


@pytest.mark.parametrize("path", GOOD_PATHS)
def test_ordinary_path_is_unchanged(path: str) -> None:
    assert PATH.validate_python(path) == path


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a//b", "'' is not a file name"),
        ("./b", "'.' is not a file name"),
        ("a/..", "'..' is not a file name"),
        ("a\\b", "contains a separator or a drive"),
        ("z:b", "'z:b' contains a separator or a drive"),
        ("a\u202eb", r"'a\\u202eb' contains a control or an invisible character"),
        ("a\x00b", r"'a\\x00b' contains a control or an invisible character"),
        ("ä" * 128, "a file name is longer than 255 bytes"),
        ("name.", "'name.' ends with a character that some file systems drop"),
        ("name ", "'name ' ends with a character"),
        ("b/lpt1.txt", "'lpt1.txt' is the name of a device on Windows"),
        ("a/.Git", "'.Git' is a folder that other programs execute code from"),
        ("~/x", "'~/x' begins with ~, like a home folder"),
        ("a/" * 32 + "a", "a path is deeper than 32 folders"),
        ("a" * 1025, "a path is longer than 1024 characters"),
    ],
)
def test_rejected_path_has_a_reason(path: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^.*{why}"):
        check_path(path)


@pytest.mark.parametrize(
    "path", ["a" * 255, "ä" * 127, "a/" * 31 + "a", "/".join(["a" * 127] * 8) + "b", "a~", "b/~"]
)
def test_path_length_limits_are_inclusive(path: str) -> None:
    assert len(path) <= 1024
    assert check_path(path) == path
    assert check_name("a" * 255) == "a" * 255


@given(st.text(max_size=60))
def test_accepted_path_stays_below_its_folder(text: str) -> None:
    try:
        check_path(text)
    except ValueError:
        return
    parts = text.split("/")
    assert all(part not in ("", ".", "..") for part in parts)
    assert "\\" not in text
    assert not any(c < " " or "\x7f" <= c < "\xa0" for c in text)


@pytest.mark.parametrize("name", ["a/b", "..", "", "a\tb"])
def test_bad_name_is_rejected(name: str) -> None:
    with pytest.raises(ValidationError):
        NAME.validate_python(name)


def test_run_id_must_be_a_ulid() -> None:
    for _ in range(100):
        assert RUN.validate_python(ulid())
    for bad in (
        "",
        "../../../../../../../../x",
        "01JD5MAMBERKESTREL0000000",
        ulid() + "\n",
        ulid().lower(),
    ):
        with pytest.raises(ValidationError):
            RUN.validate_python(bad)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("01JD5MAMBERKESTREW00000000", True),
        ("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", True),
        ("8ZZZZZZZZZZZZZZZZZZZZZZZZZ", False),
        ("01JD5MAMBERKESTREL00000000", False),  # L is no digit
        ("01JD5MAMBERKESTREW0000000", False),
        ("01JD5MAMBERKESTREW000000000", False),
        ("01JD5MAMBERKESTREW00000000\n", False),
        ("$01JD5MAMBERKESTREW00000000", False),
        ("", False),
    ],
)
def test_is_run_id_accepts_only_ulids(text: str, is_one: bool) -> None:
    assert is_run_id(text) is is_one


@pytest.mark.parametrize(
    "bad", ["", "0" * 63, "0" * 65, "A" * 64, "../" + "0" * 61, "0" * 64 + "\n"]
)
def test_bad_hash_is_rejected(bad: str) -> None:
    with pytest.raises(ValidationError):
        HASH.validate_python(bad)


@pytest.mark.parametrize("size", [-1, 2**63, 1e300, "x", None])
def test_bad_size_is_rejected(size: object) -> None:
    with pytest.raises(ValidationError):
        FileEntry.model_validate({"path": "a", "bytes": size, "sha256": "0" * 64})
