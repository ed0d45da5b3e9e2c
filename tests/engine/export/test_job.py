"""Export jobs in their own processes: rejected, cancelled, damaged, or complete."""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.export import publish
from engine.export.job import _Job, export_checkpoint
from engine.export.source import licence_of, read_source
from engine.protocol.events.checkpoints import CheckpointExported
from engine.protocol.problems import AtelierError, Refused, StoreError
from engine.protocol.requests.exports import ExportCheckpoint, ExportReport, ExportTicked
from engine.storage.checkpoints.checkpoint import MANIFEST, verify
from tests.engine.export.make_run import RUBRIC
from tests.engine_http.conftest import until
from tests.support.engine_starter import forking

ROOT = Path(__file__).parents[3]


class EventRecorder:
    """Ticks and events of an export."""

    def __init__(self) -> None:
        self.ticks: list[ExportTicked] = []
        self.events: list[CheckpointExported] = []

    async def record(self, event: CheckpointExported) -> None:
        self.events.append(event)

    async def export(self, run: Path, step: int | None = None, **options: Any) -> ExportReport:
        request = ExportCheckpoint(**options)
        return await export_checkpoint(run, step, request, self.ticks.append, self.record)


def export(
    run: Path, step: int | None = None, **options: Any
) -> tuple[ExportReport, EventRecorder]:
    listener = EventRecorder()

    async def forked() -> ExportReport:
        async with forking():
            return await listener.export(run, step, **options)

    return asyncio.run(forked()), listener


def test_invalid_export_is_rejected_and_writes_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def code(step: int | None = None, **options: Any) -> str:
        with pytest.raises(AtelierError) as raised:
            export(run, step, **{"format": "merged", "out": str(out), **options})
        assert list(tmp_path.iterdir()) == before
        return raised.value.problem.code

    non_empty = tmp_path / "full"
    non_empty.mkdir()
    (non_empty / "mine").write_text("kept")
    before = list(tmp_path.iterdir())
    assert code(step=9) == "export.no_step"
    assert code(out=str(non_empty)) == "export.not_empty"
    assert code(out="relative/path") == "export.relative"
    monkeypatch.setattr(publish.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(Refused, match=r"needs \d+ MB and the disk has 0 MB free"):
        export(run, format="gguf", out=str(out))
    monkeypatch.undo()
    (run / "checkpoints" / "step-000003" / "adapter" / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(StoreError, match="is damaged"):
        export(run, 3, format="merged", out=str(out))
    assert code() == "export.no_checkpoint"


def test_flipped_byte_is_detected_and_kept_only_with_force(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = _Job._compare

    async def flip_byte(self: _Job, *arguments: Any) -> Any:
        shard = next(self.place.out.glob("*.safetensors"))
        data = bytearray(shard.read_bytes())
        data[-5] ^= 1
        shard.write_bytes(data)
        return await compare(self, *arguments)

    monkeypatch.setattr(_Job, "_compare", flip_byte)
    out = tmp_path / "made" / "out"
    report, listener = export(run, format="merged", out=str(out), force=True, prompts=2)
    assert report.parity.verdict == "differs"
    assert report.parity.forced
    assert (
        "1 file was changed after the export was written: model.safetensors"
        in report.parity.failures[0]
    )
    assert (listener.events[0].verdict, listener.events[0].step) == ("differs", 3)
    assert "The export was kept although it differs" in (out / "README.md").read_text()
    report, listener = export(run, format="adapter", out=str(tmp_path / "other"), prompts=2)
    assert (report.parity.verdict, report.path, listener.events) == ("differs", "", [])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made", "project"]
    assert [p.name for p in out.parent.iterdir()] == ["out"]


def test_cancelled_export_leaves_nothing(run: Path, tmp_path: Path) -> None:
    """Cancelled at two moments: while checking and while writing."""

    async def cancel_at(phase: str) -> None:
        listener = EventRecorder()
        out = str(tmp_path / "made" / "out")
        async with forking():
            job = asyncio.create_task(listener.export(run, format="merged", out=out))
            await asyncio.to_thread(until, lambda: any(t.phase == phase for t in listener.ticks))
            if phase == "checking":
                await asyncio.sleep(0.3)
            job.cancel()
            start = time.monotonic()
            with pytest.raises(asyncio.CancelledError):
                await job
            assert time.monotonic() - start < 5
        assert not (tmp_path / "made").exists()
        assert listener.events == []

    asyncio.run(cancel_at("checking"))
    asyncio.run(cancel_at("writing"))


def test_full_disk_leaves_nothing(run: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["unshare", "-Urm", sys.executable, "-m", "tests.engine.export.full_disk"]
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-Urm", "true"]).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    done = subprocess.run(
        [*command, str(run), str(disk)], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.split() == ["export.disk_full", "[]"], done.stderr


def test_scratch_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead_scratch = tmp_path / f"{publish.SCRATCH}4194303-abc"
    live_scratch = tmp_path / f"{publish.SCRATCH}1-abc"
    dead_scratch.mkdir()
    live_scratch.mkdir()
    place = publish.Place.claim(str(tmp_path / "out"), 0)
    assert not dead_scratch.exists()
    assert live_scratch.exists()
    (place.out / "a").write_text("a")
    assert place.publish(publish.manifest_of(place.out)) > 0
    place.clear()
    assert verify(tmp_path / "out")
    assert (
        publish.check_files(tmp_path / "out", publish.read_manifest(tmp_path / "out")).wrong == []
    )
    assert list(json.loads((tmp_path / "out" / MANIFEST).read_text())["files"]) == ["a"]


def test_source_has_distinct_prompts_and_run_settings(run: Path, model: Path) -> None:
    source = read_source(run, None, 5)
    prompts = [source.sequences[n].tokens[: source.sequences[n].prompt] for n in range(5)]
    assert len({tuple(prompt) for prompt in prompts}) == 5
    assert source.base.name == model.name
    assert source.most_new == 16
    assert source.rubric == RUBRIC


def test_licence_is_read_from_readme_or_licence_file(tmp_path: Path) -> None:
    assert licence_of(tmp_path) == ""
    (tmp_path / "LICENSE").write_text("\n   MIT License\n\nCopyright")
    assert licence_of(tmp_path) == "MIT License"
    (tmp_path / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Model")
    assert licence_of(tmp_path) == "apache-2.0"
