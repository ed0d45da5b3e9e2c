"""GPUs read through a real library and pynvml, and their selection by CUDA variables."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.hardware.devices import chosen_gpus, read_build, visible
from engine.hardware.gpus import read_gpus
from engine.protocol.records.machine.hardware import Card
from tests.engine.hardware.nvml_stub import build

ROOT = Path(__file__).parents[3]
READ_GPUS = "from engine.hardware.gpus import read_gpus; import json; f = read_gpus(); "
PRINT_GPUS = "print(json.dumps([[c.model_dump(mode='json') for c in f.cards], f.reason]))"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


def read_with_stub(library: Path, **visible_devices: str) -> tuple[list[Card], str]:
    """Read the GPUs in a new process, since a loaded library stays loaded."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), **visible_devices}
    done = subprocess.run(
        [sys.executable, "-c", READ_GPUS + PRINT_GPUS],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    cards, reason = json.loads(done.stdout)
    return [Card.model_validate(card) for card in cards], reason


def test_all_gpu_properties_are_read(library: Path) -> None:
    (first, _), reason = read_with_stub(library, STUB_PID="4242424")
    assert reason == ""
    assert first.name == "NVIDIA L40S"
    assert first.uuid == "GPU-aaaa"
    assert (first.total_bytes, first.used_bytes) == (48_000_000_000, 6_100_000_000)
    assert first.free_bytes == 41_900_000_000
    assert first.busy_percent == 0  # 0, not None
    assert (first.temperature_c, first.power_w, first.power_limit_w) == (61, 217.5, 350)
    assert first.capability == (8, 9)
    assert (first.driver, first.cuda) == ("580.65.06", (13, 0))
    assert first.processes is not None
    (process,) = first.strangers
    assert (process.pid, process.name, process.ours) == (4242424, "trainer", False)
    assert process.bytes == 6_000_000_000
    assert first.others_bytes == 6_100_000_000


def test_unsupported_properties_are_none(library: Path) -> None:
    (_, second), _ = read_with_stub(library)
    unsupported = (
        second.total_bytes,
        second.used_bytes,
        second.free_bytes,
        second.busy_percent,
        second.temperature_c,
        second.power_w,
        second.power_limit_w,
        second.capability,
        second.processes,
        second.others_bytes,
    )
    assert unsupported == (None,) * len(unsupported)
    assert second.name == "NVIDIA L40S"


def test_missing_gpus_have_a_reason(library: Path) -> None:
    assert read_with_stub(library, STUB_CARDS="0") == ([], "The NVIDIA driver finds no GPU.")
    unloaded = "The NVIDIA driver is installed, but not loaded."
    assert read_with_stub(library, STUB_UNLOADED="1") == ([], unloaded)


@pytest.mark.skipif(bool(read_gpus().cards), reason="this machine has a card")
def test_missing_driver_has_a_reason() -> None:
    gpus = read_gpus()
    assert gpus.cards == ()
    assert gpus.reason.startswith("The")


def make_gpus(*names: str) -> list[Card]:
    return [Card(index=i, uuid=f"GPU-{i}{i}", name=name) for i, name in enumerate(names)]


@pytest.mark.parametrize(
    ("visible_devices", "indices"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        ("1,9,0", [1]),
        ("GPU-22, GPU-0", [2, 0]),
        ("GPU-", []),
        ("1,1", [1]),
    ],
)
def test_cuda_visible_devices_is_respected(visible_devices: str | None, indices: list[int]) -> None:
    environment = {} if visible_devices is None else {"CUDA_VISIBLE_DEVICES": visible_devices}
    visible_gpus = visible(make_gpus("A", "A", "A"), environment)
    assert [card.index for card in visible_gpus] == indices


def test_chosen_gpus_are_all_without_a_known_device_order() -> None:
    cards = make_gpus("small", "large")
    assert len(chosen_gpus(cards, 1, {})) == 2
    assert len(chosen_gpus(cards, 1, {"CUDA_VISIBLE_DEVICES": "0"})) == 2
    assert [c.index for c in chosen_gpus(cards, 1, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})] == [0]
    assert [c.index for c in chosen_gpus(cards, 1, {"CUDA_VISIBLE_DEVICES": "GPU-11"})] == [1]
    assert [c.index for c in chosen_gpus(make_gpus("A", "A"), 1, {})] == [0]


def test_read_build_parses_torch_and_cuda_versions() -> None:
    cuda = "__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\n"
    assert read_build(cuda) == ("2.13.0", "13.0")
    cpu = "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n"
    assert read_build(cpu) == ("2.13.0+cpu", None)
