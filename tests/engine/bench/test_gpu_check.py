"""Command `atelier bench --gpu` on the CPU: measured, skipped and failing checks."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from engine.bench.gpu.attention import TOLERANCE, WINDOWS, Work, difference
from engine.bench.gpu.page import merged, page
from engine.bench.gpu.plan import Check, checks, chosen, lacks
from engine.bench.gpu.report import CheckReport, GpuReport, Table
from engine.bench.gpu.runner import Bench, run_checks
from engine.bench.gpu.survey import Survey
from engine.launcher.interpreters import own_interpreter
from engine.policy.torch.training.prefix_tree import grow
from engine.protocol.records.machine.hardware import Card

ROOT = Path(__file__).parents[3]
ODD_CHECKS = "tests.engine.bench.odd_checks"
WHOLE = Survey(
    executable="python",
    python="3.11.7",
    packages=dict.fromkeys(("torch", "transformers", "peft", "openai", "vllm", "trl"), "1"),
    cuda="13.0",
    cards=(Card(index=0, uuid="GPU-1", name="A card"),),
    compiler="/usr/bin/cc",
    headers=True,
)


def bench(*arguments: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "engine", "bench", *arguments]
    variables_ = {"XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, **variables_, **variables},
    )


@pytest.mark.long
def test_quick_check_runs_on_the_cpu(tiny_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    selected = ("machine", "gradients", "hello-torch-torch", "hello-unsloth-torch-4bit")
    done = bench(
        *("--gpu", "--processor", "--quick", "--json", "--model", str(tiny_model)),
        *("--out", str(out), *(word for name in selected for word in ("--only", name))),
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    report = GpuReport.model_validate_json(done.stdout)
    assert report == GpuReport.model_validate_json((out / "gpu-report.json").read_text())
    assert {c.name: c.state for c in report.checks} == {
        **dict.fromkeys(selected, "passed"),
        "hello-unsloth-torch-4bit": "skipped",
    }
    machine, gradients, run, skipped = report.checks
    assert machine.figures["peak_float32_flops"] > 1e9
    assert gradients.figures["gradient_float32_error"] <= 1e-5
    assert run.figures["steps"] == 2
    for name in ("step_s", "rollout_s", "train_s", "publish_s", "sampled_tokens_per_s"):
        assert run.figures[name] > 0, name
    assert "bitsandbytes" in skipped.words or "card" in skipped.words
    text = (out / "gpu-report.md").read_text()
    assert text == page(report)
    for words in ("say nothing about a GPU", "## Skipped checks", skipped.words):
        assert words in text
    assert f"--model {tiny_model}" in text


def test_failing_checks_are_reported_and_others_continue(tiny_model: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    all_checks = [
        Check("dies", "", "machine", f"{ODD_CHECKS}:dies", packages=()),
        Check("breaks", "", "machine", f"{ODD_CHECKS}:breaks", packages=()),
        Check("refuses", "", "machine", f"{ODD_CHECKS}:refuses", packages=()),
        Check("hangs", "", "machine", f"{ODD_CHECKS}:hangs", {"pid": str(pid)}, packages=()),
        Check("needs", "", "machine", f"{ODD_CHECKS}:works", packages=("unheard_of",)),
        Check("works", "", "machine", f"{ODD_CHECKS}:works", packages=()),
    ]
    messages: list[str] = []
    reported: list[CheckReport] = []
    common: dict[str, Any] = {"on_processor": True, "quick": True, "say": messages.append}
    shared = Bench(own_interpreter(), WHOLE, tiny_model, tmp_path, **common, limit_s=4)
    reports = asyncio.run(run_checks(shared, all_checks, reported.append))
    assert reported == reports
    words = {report.name: (report.state, report.words) for report in reports}
    assert words == {
        "dies": ("failed", "The check's process was killed: it probably ran out of memory."),
        "breaks": ("failed", "ValueError: seven is no colour"),
        "refuses": ("failed", "Memory ran out. Take less."),
        "hangs": ("failed", "The check did not finish within 4 s and was stopped."),
        "needs": ("skipped", "unheard_of must be installed for python."),
        "works": ("passed", "It works."),
    }
    assert reports[2].detail == "where"
    assert "works: at it" in messages
    assert not any("libraries print" in line for line in messages)
    assert not psutil.pid_exists(int(pid.read_text()))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpu",), "--processor runs the same checks"),
        (("--gpu", "--processor", "--only", "nothing"), "'nothing' is not a check"),
        (("--quick",), "--quick needs --gpu"),
    ],
)
def test_bad_usage_is_one_sentence(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = bench(*arguments, folder=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_missing_requirements_are_named() -> None:
    all_checks = {check.name: check for check in checks()}
    assert len(all_checks) == len(checks())

    def missing(name: str, on_processor: bool = False, **changes: Any) -> str:
        return lacks(all_checks[name], WHOLE.model_copy(update=changes), on_processor)

    assert missing("machine") == ""
    assert missing("hello-torch-vllm") == ""
    assert missing("hello-unsloth-vllm") == "unsloth must be installed for python."
    assert "no C compiler" in missing("hello-torch-vllm", compiler="")
    assert "python3.11-dev" in missing("2048-torch-vllm", headers=False)
    assert missing("cards") == "This check needs 2 GPUs; CUDA shows 1."
    assert missing("cards", on_processor=True) == ""
    basic_packages = {"packages": {"torch": "1", "transformers": "1", "peft": "1"}}
    assert missing("gradients", **basic_packages) == ""
    assert "openai" in missing("hello-torch-torch", **basic_packages)
    with_environments = {
        "environments": {"vllm-cpu": "python", "bench": "python"},
        **basic_packages,
    }
    assert "vllm" in missing("hello-torch-vllm", **with_environments)
    assert "vllm" not in missing("hello-torch-vllm", on_processor=True, **with_environments)
    assert missing("trl-live", **with_environments) == ""


def test_checks_are_selected_by_name_prefix() -> None:
    names = [check.name for check in chosen(checks(), ["trl", "2048-torch"])]
    assert names == ["2048-torch-torch", "2048-torch-vllm", "trl-replay", "trl-live"]
    assert chosen(checks(), []) == checks()


@pytest.mark.parametrize("window", WINDOWS)
def test_segment_attention_equals_a_dense_mask(window: int | None) -> None:
    forest = grow(Work(20, 8, 4).sequences)
    differences = difference(forest, torch.float32, torch.device("cpu"), window)
    assert max(differences) <= TOLERANCE[torch.float32]


def test_page_lists_failures_first_and_escapes_tables() -> None:
    table = Table(title="Speed", head=["run", "s"], rows=[["a|b", "1"]], note="Seconds.")
    common: dict[str, Any] = {"title": "T", "section": "runs", "seconds": 1.0}
    runs = [
        CheckReport(name="one", state="failed", words="It broke.", detail="```\nTrace", **common),
        CheckReport(name="two", state="failed", words="No.", tables=[table, table], **common),
    ]
    report = GpuReport(
        at="2026-01-02T03:04:05+00:00", command="atelier bench --gpu", version="1",
        commit="", model="m", device="A card", on_processor=False, quick=False, seconds=100,
        python="3", packages={}, notes=[], checks=runs,
    )  # fmt: skip
    text = page(report)
    assert text.startswith("# GPU check · A card\n\n**2 failed** in 1:40 min, 2026-01-02, 03:04.")
    assert text.index("## Failed checks") < text.index("## All checks")
    assert text.count("```") % 2 == 0
    assert "| a\\|b | 1 |\n| a\\|b | 1 |" in text
    assert len(merged([table, table.model_copy(update={"head": ["run", "h"]})])) == 2
    assert json.loads(report.model_dump_json())["checks"][0]["state"] == "failed"
