"""GPU checks of `doctor`: state, text and hint of each line."""

from pathlib import Path

import pytest

from engine.hardware import doctor
from engine.hardware.devices import TorchBuild
from engine.hardware.doctor import examine_graphics
from engine.hardware.gpus import Found
from engine.protocol.records.machine.hardware import Card, Check

CPU, CUDA = TorchBuild("2.13.0+cpu", None), TorchBuild("2.13.0", "13.0")
CARD = Card(
    index=0,
    uuid="GPU-a",
    name="NVIDIA L40S",
    total_bytes=48_000_000_000,
    free_bytes=40_000_000_000,
    capability=(8, 9),
    driver="580.65.06",
    cuda=(13, 0),
)


def checks(
    tmp_path: Path, own: TorchBuild | None = CUDA, gpu: TorchBuild | None = None, **card: object
) -> dict[str, Check]:
    survey = Found((CARD.model_copy(update=card),))
    return {check.name: check for check in examine_graphics(survey, own, gpu, tmp_path)}


def test_machine_without_gpu_has_one_good_check(tmp_path: Path) -> None:
    (only_check,) = examine_graphics(Found((), "There is no NVIDIA driver."), CPU, None, tmp_path)
    assert only_check.state == "good"
    assert only_check.hint == ""
    assert "CPU" in only_check.words


def test_supported_gpu_has_only_good_checks(tmp_path: Path) -> None:
    checks_ = checks(tmp_path)
    assert {check.state for check in checks_.values()} == {"good"}
    assert checks_["NVIDIA driver"].words == "580.65.06, runs CUDA 13.0"
    expected = "NVIDIA L40S, 40.0 of 48.0 GB free, compute capability 8.9"
    assert checks_["Card 0"].words == expected


@pytest.mark.parametrize(
    ("name", "state", "card"),
    [
        ("NVIDIA driver", "bad", {"driver": "570.124.06", "cuda": (12, 8)}),
        ("NVIDIA driver", "warn", {"driver": None}),
        ("Card 0", "bad", {"capability": (7, 0)}),
        ("Card 0", "warn", {"capability": (7, 5)}),
        ("Card 0", "warn", {"free_bytes": 2_000_000_000}),
    ],
)
def test_old_driver_or_small_gpu_is_reported(
    tmp_path: Path, name: str, state: str, card: dict[str, object]
) -> None:
    check = checks(tmp_path, **card)[name]
    assert check.state == state
    assert check.hint or state == "warn"


def test_unknown_gpu_properties_are_omitted(tmp_path: Path) -> None:
    unknown = {"total_bytes": None, "free_bytes": None, "capability": None}
    check = checks(tmp_path, **unknown)["Card 0"]
    assert (check.state, check.words) == ("good", "NVIDIA L40S")


def test_gpu_without_engine_gets_an_installation_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks_ = checks(tmp_path, own=CPU)
    assert checks_["GPU engine"].state == "warn"
    assert "engine-gpu" in checks_["GPU engine"].hint
    assert "about 15 needed" in checks_["Disk, GPU engine"].words
    monkeypatch.setattr(doctor, "GPU_ENGINE_BYTES", 10**18)
    assert checks(tmp_path, own=CPU)["Disk, GPU engine"].state == "bad"
    installed = checks(tmp_path, own=CPU, gpu=CUDA)
    assert installed["GPU engine"].state == "good"
    assert "Disk, GPU engine" not in installed


def test_known_versions_equal_pyproject() -> None:
    text = (Path(doctor.__file__).parents[2] / "pyproject.toml").read_text()
    assert [name for name, v in doctor.KNOWN.items() if f'"{name}=={v}"' not in text] == []


def test_versions_off_the_known_set_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "KNOWN", {"torch": "9.9.9", "no-such-package": "1"})
    check = checks(tmp_path)["Versions"]
    assert check.state == "warn"
    assert "(tested: 9.9.9)" in check.words
    assert "no-such" not in check.words
