"""Fit of a model before its download: the forecast of a run, without a second estimate."""

from pathlib import Path

import pytest

from engine.hardware.machine import host_memory
from engine.hardware.memory_plan import vram_plan
from engine.hardware.model_fit import fit_of
from engine.models.file_checks import shape_counts
from engine.models.registry import STARTERS, converted
from engine.protocol.config.project import ProjectConfig
from tests.engine.hardware.models import write_headers
from tests.engine.hardware.test_memory_plan import GB, card

CONFIG = ProjectConfig()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_headers(tmp_path_factory.mktemp("models") / "llama-8b")


def test_verdict_follows_the_plan_of_a_run(model: Path) -> None:
    verdicts = {}
    for size in (16, 24, 80):
        fit = fit_of(shape_counts(model), CONFIG, [card(size * GB)])
        plan = vram_plan(CONFIG, model, [card(size * GB)])
        assert plan is not None
        assert fit.peak_bytes == plan.fullest.peak_bytes
        assert fit.room_bytes == size * GB
        verdicts[size] = fit.verdict
    assert verdicts == {16: "too_large", 24: "fits_4bit", 80: "fits"}


def test_memory_of_others_does_not_count_as_room(model: Path) -> None:
    assert fit_of(shape_counts(model), CONFIG, [card(80 * GB, others=60 * GB)]).verdict != "fits"


def test_cpu_has_no_four_bits(model: Path) -> None:
    counts = shape_counts(model)
    large, small = (fit_of(counts, CONFIG, [], host_bytes=size * GB) for size in (200, 10))
    assert (large.verdict, small.verdict) == ("fits", "too_large")
    assert large.peak_4bit_bytes is None
    assert large.peak_bytes == sum(part.training_bytes for part in large.parts)
    assert fit_of(counts, CONFIG, []).room_bytes == host_memory()


def test_unknown_is_never_fits() -> None:
    assert fit_of(None, CONFIG, [card(80 * GB)]).verdict is None
    assert fit_of(None, CONFIG, [card(80 * GB)], parameters=7 * GB).verdict is None
    assert fit_of(None, CONFIG, [card(80 * GB)], parameters=700 * GB).verdict == "too_large"
    assert fit_of(None, CONFIG, [], host_bytes=10 * GB, parameters=7 * GB).verdict == "too_large"
    unreported = card(80 * GB).model_copy(update={"total_bytes": None})
    assert fit_of(STARTERS[0].counts, CONFIG, [unreported]).verdict is None


def test_counts_of_the_starter_are_those_of_its_files() -> None:
    folder = converted(STARTERS[0])
    if folder is None:
        pytest.skip("the starter model is not on this machine")
    assert STARTERS[0].counts == shape_counts(folder)
