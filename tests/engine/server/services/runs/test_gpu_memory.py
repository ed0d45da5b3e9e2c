"""GPU locks across processes, memory used by other processes, and advice after out-of-memory."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.hardware import devices
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import changed_config
from engine.protocol.problems import Problem, Refused
from engine.protocol.records.machine.hardware import Card, CardProcess
from engine.server.lock import device_lock
from engine.server.services.runs import gpu_memory
from tests.engine.hardware.models import write_headers

ROOT = Path(__file__).parents[5]
GB = 10**9
HOLD = """
import sys
from engine.protocol.records.machine.hardware import Card
from engine.server.lock import device_lock
cards = [Card(index=0, uuid=u, name="NVIDIA L40S") for u in sys.argv[1:]]
with device_lock(cards, "quiet-fox of hello"):
    print("held", flush=True)
    sys.stdin.read()
"""


def card(uuid: str = "GPU-a", index: int = 0, used: int = 0) -> Card:
    return Card(
        index=index,
        uuid=uuid,
        name="NVIDIA L40S",
        total_bytes=48 * GB,
        used_bytes=used,
        free_bytes=48 * GB - used,
        capability=(8, 9),
        processes=(CardProcess(pid=4242, bytes=used, name="python"),) if used else (),
    )


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_headers(tmp_path_factory.mktemp("models") / "llama-8b")


def another_engine(*uuids: str) -> "subprocess.Popen[str]":
    """Start a process that locks these GPUs, or the CPU without arguments."""
    command = [sys.executable, "-c", HOLD, *uuids]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_gpu_lock_excludes_other_engines_and_other_gpus_are_free() -> None:
    with another_engine("GPU-a") as other:
        with pytest.raises(Refused) as error, device_lock([card("GPU-b", 1), card()]):
            pass
        message = error.value.problem.message
        assert "GPU 0 (NVIDIA L40S)" in message
        assert f"quiet-fox of hello (process {other.pid})" in message
        with device_lock([card("GPU-b", 1)], "me"), device_lock([], "me"):
            pass
        other.communicate()
    with device_lock([card()], "me"):
        pass


def test_cpu_lock_excludes_other_engines() -> None:
    with another_engine() as other:
        with pytest.raises(Refused, match="quiet-fox of hello") as error, device_lock():
            pass
        assert error.value.problem.code == "run.device_busy"
        with device_lock([card()]):
            pass
        other.communicate()


def test_lock_of_a_killed_process_is_released() -> None:
    with another_engine("GPU-a") as other:
        other.kill()
    with device_lock([card()]):
        pass


def test_gpu_in_use_by_others_is_refused_with_numbers(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_memory, "PAUSE_S", 0.0)
    busy_card = card(used=30 * GB)
    monkeypatch.setattr(gpu_memory, "cards_of", lambda backend: (busy_card,))
    config = ProjectConfig()
    with pytest.raises(Refused) as error:
        asyncio.run(gpu_memory.require_gpu_memory(config, model, [busy_card]))
    message = error.value.problem.message
    assert message.startswith("python (process 4242) holds memory on GPU 0 (NVIDIA L40S): 30.0 of")
    assert "this run needs about" in message
    share = changed_config(config, {"backend.share_card": True})
    asyncio.run(gpu_memory.require_gpu_memory(share, model, [busy_card]))
    asyncio.run(gpu_memory.require_gpu_memory(config, model, [card(used=GB)]))


def test_memory_check_waits_for_ended_processes(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_memory, "PAUSE_S", 0.0)
    monkeypatch.setattr(gpu_memory, "cards_of", lambda backend: (card(),))
    asyncio.run(gpu_memory.require_gpu_memory(ProjectConfig(), model, [card(used=30 * GB)]))


def test_out_of_memory_advice_names_a_setting_and_number(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(code="policy.out_of_memory", message="Memory ran out.", hint="Halve it.")
    config = changed_config(ProjectConfig(), {"train.batch_tokens": 16_384})
    monkeypatch.setattr(gpu_memory, "cards_of", lambda backend: (card(),))
    hint = gpu_memory.with_memory_advice(problem, config, model).hint
    assert hint.startswith("Start again from the last checkpoint with train.batch_tokens = ")
    assert "of 48.0 GB" in hint
    monkeypatch.setattr(gpu_memory, "cards_of", lambda backend: ())
    assert "train.batch_tokens = " in gpu_memory.with_memory_advice(problem, config, model).hint
    assert gpu_memory.with_memory_advice(problem, config, model / "gone") == problem
    other = problem.model_copy(update={"code": "policy.other"})
    assert gpu_memory.with_memory_advice(other, config, model) is other


def test_cpu_build_of_torch_uses_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "torch_build", lambda: devices.TorchBuild("2.13.0+cpu", None))
    assert devices.cards_of(ProjectConfig().backend) == ()
    assert os.environ.get("CUDA_VISIBLE_DEVICES") is None
