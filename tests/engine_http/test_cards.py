"""Engine on a machine with two GPUs, faked by a driver library in C: ticks, forecast, doctor."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.client import EngineClient
from engine.protocol.events.run import FINAL, ProgressTicked, RunFailed
from engine.protocol.problems import Refused
from tests.engine.hardware.nvml_stub import build
from tests.engine_http.conftest import Engine, make_project, start_engine, stop_engine


@pytest.fixture(scope="module")
def gpu_engine(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with fake_driver(tmp_path_factory.mktemp("driver")):
        engine = start_engine(home)
    yield engine
    stop_engine(engine)


@contextlib.contextmanager
def fake_driver(folder: Path) -> Iterator[None]:
    """Make processes started in the block find a driver library with two GPUs."""
    library = build(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(library))
        patch.setenv("STUB_PID", str(os.getpid()))
        patch.setenv("STUB_USED", "47900000000")
        patch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
        yield


def test_ticks_report_gpus_and_are_not_stored(
    gpu_engine: Engine, home: Path, tiny_model: Path
) -> None:
    project = make_project(home / "carded", tiny_model)
    run = gpu_engine.train(project, **{"train.steps": 40})

    async def listen(client: EngineClient) -> tuple[list[ProgressTicked], set[str]]:
        ticks, stored = [], set()
        async with asyncio.timeout(60):
            async for event in client.events(run.id):
                if isinstance(event, ProgressTicked):
                    ticks.append(event)
                else:
                    stored.add(str(getattr(event, "kind", "")))
                if isinstance(event, FINAL) or any(tick.cards for tick in ticks):
                    break
        return ticks, stored

    assert run.device.startswith("CPU")  # this torch supports only the CPU
    ticks, stored = gpu_engine.call(listen)
    gpu_engine.stop_runs(home)
    (second, first) = next(tick.cards for tick in ticks if tick.cards)
    # in the order of CUDA_VISIBLE_DEVICES
    assert (first.uuid, second.uuid) == ("GPU-aaaa", "GPU-bbbb")
    assert first.power_w == 217.5
    assert second.total_bytes is None
    (stranger,) = first.strangers  # this test's own process, not a child of the engine
    assert (stranger.pid, stranger.bytes) == (os.getpid(), 47_800_000_000)
    assert "progress.ticked" not in stored


def test_forecast_accepts_unsaved_values(gpu_engine: Engine, home: Path, tiny_model: Path) -> None:
    path = str(make_project(home / "priced", tiny_model))
    plain = gpu_engine.call(lambda client: client.forecast(path))
    more = gpu_engine.call(
        lambda client: client.forecast(path, {"train.steps": 30, "model.rank": 64})
    )
    assert (plain.steps, more.steps) == (3, 30)
    assert more.adapter_bytes == 16 * plain.adapter_bytes
    assert plain.vram is None
    assert gpu_engine.call(lambda client: client.forecast(path)).steps == 3
    with pytest.raises(Refused, match="greater than or equal to 1"):
        gpu_engine.call(lambda client: client.forecast(path, {"train.steps": -1}))


def test_doctor_reports_gpus(gpu_engine: Engine) -> None:
    checks = {check.name: check for check in gpu_engine.call(lambda client: client.doctor())}
    assert checks["NVIDIA driver"].words == "580.65.06, runs CUDA 13.0"
    assert checks["Card 0"].state == "warn"
    assert "0.1 of 48.0 GB free" in checks["Card 0"].words
    assert checks["Card 1"].words == "NVIDIA L40S"


@pytest.fixture
def cuda_engine(workspace: Path, tmp_path: Path) -> Iterator[Engine]:
    """Engine whose torch claims a CUDA build; torch is never imported here."""
    torch = tmp_path / "beside" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text("__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(torch.parent))
        with fake_driver(tmp_path):
            engine = start_engine(workspace)
    yield engine
    stop_engine(engine)


def test_gpu_held_by_another_program_is_rejected(
    cuda_engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    project = make_project(workspace / "held", tiny_model, toml="\n[backend]\nprocesses = 2\n")
    made = cuda_engine.call(lambda client: client.forecast(str(project)))
    assert made.vram is not None
    (only,) = made.vram.cards  # the other GPU does not report its size
    assert (only.total_bytes, only.others_bytes) == (48_000_000_000, 47_900_000_000)
    assert not only.fits
    run = cuda_engine.train(project)
    assert run.device == "2 × NVIDIA L40S"
    *_, last = cuda_engine.wait(run)
    assert isinstance(last, RunFailed)
    assert last.problem.code == "run.card_held"
    assert f"(process {os.getpid()}) holds memory on GPU 0 (NVIDIA L40S): 47.9 of 48.0 GB" in (
        last.problem.message
    )
