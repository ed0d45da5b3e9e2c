"""GPU check on a real GPU: `pytest -m gpu`.

ATELIER_GPU_MODEL names another model than the starter; ATELIER_GPU_REPORT is a folder for the
report.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.bench.gpu.gradients import TOLERANCE
from engine.bench.gpu.report import CheckReport, GpuReport
from engine.bench.gpu.runner import ask_survey
from engine.launcher.interpreters import chosen_interpreters
from engine.models.registry import problem_of
from engine.policy.logprob_gap import TOLERANCE as GAPS

ROOT = Path(__file__).parents[2]
MODEL = os.environ.get("ATELIER_GPU_MODEL", "smollm2-135m-instruct")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> GpuReport:
    """Report of one quick check of everything that is installed."""
    if why := asyncio.run(ask_survey(chosen_interpreters()[0][0])).no_card:
        pytest.skip(f"This test needs a GPU. {why}")
    if problem := problem_of(MODEL):
        pytest.skip(f"It needs a model: {problem}")
    folder = tmp_path_factory.mktemp("gpu")
    out = Path(os.environ.get("ATELIER_GPU_REPORT", folder / "report"))
    command = ("bench", "--gpu", "--quick", "--json", "--model", MODEL, "--out", str(out))
    variables = {"XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "engine", *command],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode in (0, 1)
    print((out / "gpu-report.md").read_text())
    return GpuReport.model_validate_json(done.stdout)


def passed(report: GpuReport, name: str) -> CheckReport:
    return next(check for check in report.of("passed") if check.name == name)


def test_no_check_failed(report: GpuReport) -> None:
    assert {check.name: check.words for check in report.of("failed")} == {}


def test_gpu_compute_and_bandwidth_are_plausible(report: GpuReport) -> None:
    figures = passed(report, "machine").figures
    assert figures["peak_float32_flops"] > 1e12
    assert figures["bandwidth_bytes_s"] > 5e10


def test_prefix_sharing_is_exact_on_gpu(report: GpuReport) -> None:
    errors = passed(report, "gradients").figures
    assert errors
    for name, error in errors.items():
        assert error <= TOLERANCE[name.split("_")[1]]
    figures = passed(report, "logprobs").figures
    assert figures["logprob_gap_float32_mean_nats"] <= GAPS["float32"]


def test_every_run_reports_its_metrics(report: GpuReport) -> None:
    runs = [check for check in report.of("passed") if check.section == "runs"]
    assert {"hello-torch-torch", "2048-torch-torch"} <= {check.name for check in runs}
    for check in runs:
        f = check.figures
        parts = f["rollout_s"] + f["train_s"] + f["publish_s"]
        assert 0 < parts <= f["step_s"] * 1.5, check.name
        assert f["sampled_tokens_per_s"] > 0
        assert 0 < f["goodput_train_share"] <= 1
        assert f["held_bytes"] > 0
        assert f["logprob_gap_max_nats"] < 1


def test_skipped_checks_have_a_reason(report: GpuReport) -> None:
    assert all(check.words.endswith(".") for check in report.of("skipped"))
