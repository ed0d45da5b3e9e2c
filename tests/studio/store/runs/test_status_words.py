"""Texts, tones and icons of runs in lists, headers and empty charts."""

from typing import Any, get_args

import pytest

from engine.protocol.problems import Problem
from engine.protocol.records.runs import Phase, RunSummary
from studio.store.runs.parts import StepRecord
from studio.store.runs.state import RunState
from studio.store.runs.status_words import (
    PHASES,
    StateWords,
    empty_words,
    largest_gap,
    no_train_words,
    phase_words,
    run_words,
    script_of,
    state_words,
    steps_of,
)

MEMORY = Problem(code="policy.out_of_memory", message="?")


def summary(state: str, kind: str = "train", **fields: Any) -> RunSummary:
    defaults: dict[str, Any] = {
        "id": "r", "name": "amber-kestrel", "kind": kind, "project": "p", "project_path": "/p",
        "path": "/r", "state": state, "step": 3, "steps": 10, "started_at": 0, "changed_at": 0,
        "trajectories": 5, "contestants": ["base", "x@2"], "attempts": 24,
    }  # fmt: skip
    return RunSummary.model_validate(defaults | fields)


@pytest.mark.parametrize(
    ("kind", "state", "words"),
    [
        ("train", "queued", ("Queued", "muted", "clock")),
        ("train", "starting", ("Starting", "accent", "activity")),
        ("train", "running", ("Training, step 3 of 10", "accent", "activity")),
        ("train", "stopping", ("Stopping after this step", "warn", "square")),
        ("train", "reviewing", ("Step 4 waits for your review", "human", "hand")),
        ("train", "pausing", ("Pausing…", "warn", "pause")),
        ("train", "paused", ("Paused at step 3", "warn", "pause")),
        ("train", "stopped", ("Stopped at step 3", "muted", "square")),
        ("train", "failed", ("Failed: out of memory, step 3", "bad", "octagon-alert")),
        ("train", "finished", ("Finished, 3 steps", "good", "check")),
        ("train", "damaged", ("Damaged", "bad", "octagon-alert")),
        ("sft", "running", ("Training, update 3 of 10", "accent", "activity")),
        ("sft", "finished", ("Finished, 3 updates", "good", "check")),
        ("baseline", "damaged", ("Damaged", "bad", "octagon-alert")),
        ("baseline", "running", ("Measuring the baseline", "accent", "activity")),
        ("baseline", "finished", ("Baseline measured", "good", "check")),
        ("baseline", "failed", ("Baseline stopped", "bad", "octagon-alert")),
        ("baseline", "stopped", ("Baseline stopped", "bad", "octagon-alert")),
        ("arena", "running", ("Side by side", "muted", "columns-3")),
        ("writing", "finished", ("Written", "muted", "pencil")),
        ("imported", "finished", ("Imported", "good", "import")),
        ("outside", "running", ("Trained by script, step 3", "accent", "activity")),
        ("outside", "paused", ("Paused at step 3", "warn", "pause")),
        ("evaluation", "starting", ("Evaluating, 5 of 24", "accent", "activity")),
        ("evaluation", "running", ("Evaluating, 5 of 24", "accent", "activity")),
        ("evaluation", "pausing", ("Pausing…", "warn", "pause")),
        ("evaluation", "paused", ("Evaluation paused at 5 of 24", "warn", "pause")),
        ("evaluation", "stopping", ("Stopping the evaluation", "warn", "square")),
        ("evaluation", "stopped", ("Evaluation stopped at 5 of 24", "muted", "square")),
        ("evaluation", "failed", ("Evaluation failed: out of memory", "bad", "octagon-alert")),
        ("evaluation", "finished", ("Evaluated 2 models", "good", "check")),
    ],
)
def test_run_words_of_each_state(kind: str, state: str, words: tuple[str, str, str]) -> None:
    assert run_words(summary(state, kind, problem=MEMORY)) == StateWords(*words)


@pytest.mark.parametrize(
    ("kind", "steps", "text"),
    [
        ("train", 1, "Finished, 1 step"),
        ("train", 0, "Finished, 0 steps"),
        ("train", 1200, "Finished, 1,200 steps"),
        ("sft", 1200, "Finished, 1,200 updates"),
    ],
)
def test_finished_steps_are_counted(kind: str, steps: int, text: str) -> None:
    assert run_words(summary("finished", kind, step=steps)).text == text


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("policy.out_of_memory", "out of memory"),
        ("store.disk_full", "disk full"),
        ("agent.import", "agent import failed"),
        ("sampler.not_started", "vLLM did not start"),
        ("sampler.not_installed", "vLLM is not installed"),
        ("sampler.out_of_memory", "not enough memory for vLLM"),
        ("sampler.died", "vLLM crashed repeatedly"),
        ("sampler.refused", "vLLM rejected a request"),
        ("policy.stale_adapter", "the sampler used an old adapter"),
        ("trainer.not_installed", "Unsloth is not installed"),
        ("model.segments_unseen", "Unsloth does not support this model"),
        ("model.needs_unsloth", "these weights need Unsloth"),
        ("backend.too_few_cards", "too few GPUs"),
        ("run.card_held", "the GPU is in use"),
        ("judge.no.valid_key_left", "valid key left"),
        ("", "unknown problem"),
        (None, "unknown problem"),
    ],
)
def test_failed_run_names_cause(code: str | None, cause: str) -> None:
    problem = None if code is None else Problem(code=code, message="?")
    assert run_words(summary("failed", problem=problem)).text == f"Failed: {cause}, step 3"


def test_script_of_run_is_named() -> None:
    assert script_of(summary("running", source="openpipe-art 0.5.18")) == "ART script"
    assert script_of(summary("running", source="trl 1.0")) == "script"
    run = summary("running", "outside", source="openpipe-art 0.5.18")
    assert run_words(run).text == "Trained by ART script, step 3"


def test_steps_of_a_plan() -> None:
    assert (steps_of(3, 10), steps_of(3, 0)) == ("3 of 10", "3")


def test_train_hint_when_a_script_trains() -> None:
    assert no_train_words(None) == "A script trains this project. Start the script."
    assert no_train_words(summary("stopped")) == (
        "A script trains this project. Start the script; it continues amber-kestrel after step 3."
    )


def state(status: str = "running", **fields: Any) -> RunState:
    return RunState("r", **{"status": status, "seq": 1, **fields})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"phase": "loading"}, ("Loading model", "accent", "activity")),
        ({"phase": "warming_up"}, ("Warming up", "accent", "activity")),
        ({"phase": "validating"}, ("Measuring the baseline", "accent", "activity")),
        ({"phase": "validating", "step": 4}, ("Step 4 · validating", "accent", "activity")),
        ({"phase": "validating", "done": 4}, ("Step 4 · validating", "accent", "activity")),
        ({"phase": "training", "step": 4, "done": 3}, ("Step 4 · training", "accent", "activity")),
        ({"phase": "training"}, ("Step 0 · training", "accent", "activity")),
        ({}, ("Running", "muted", "activity")),
        ({"status": "paused", "phase": "training"}, ("Paused", "muted", "activity")),
        ({"seq": 0, "phase": "training"}, ("No run yet", "muted", "circle-dashed")),
    ],
)
def test_state_words_of_header(fields: dict[str, Any], words: tuple[str, str, str]) -> None:
    assert state_words(state(**fields), None) == StateWords(*words)


def test_header_follows_list_while_run_starts_or_stops() -> None:
    training = state(phase="training", step=4)
    stopping = ("Stopping after step 4", "warn", "square")
    assert state_words(training, summary("stopping")) == StateWords(*stopping)
    assert state_words(state(phase="loading"), summary("stopping")).text == (
        "Stopping after this step"
    )
    assert state_words(training, summary("starting")).text == "Starting"
    assert state_words(training, summary("running")).text == "Step 4 · training"
    assert state_words(training, summary("paused")).text == "Step 4 · training"
    assert state_words(state("paused", step=4), summary("paused")).text == "Paused at step 3"
    assert state_words(state(seq=0, phase="training"), summary("running")).text == (
        "Training, step 3 of 10"
    )


@pytest.mark.parametrize("status", ["running", "pausing", "paused", "stopping", "finished"])
def test_header_of_evaluation_counts_rollouts(status: str) -> None:
    run = summary(status, "evaluation")
    assert state_words(state(phase="training", step=4), run) == run_words(run)


def test_every_phase_has_text() -> None:
    assert set(PHASES) == set(get_args(Phase))
    assert phase_words("rolling_out", None) == "sampling"
    assert phase_words("rolling_out", summary("running")) == "sampling"
    script = summary("running", "outside")
    assert phase_words("rolling_out", script) == "the script is sampling"
    assert phase_words("training", script) == "training"
    assert phase_words("dreaming", None) == "dreaming"  # type: ignore[arg-type]
    assert state_words(state(phase="rolling_out", step=4), script).text == (
        "Step 4 · the script is sampling"
    )


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("queued", "The run is queued"),
        ("starting", "First point after step 1"),
        ("running", "First point after step 1"),
        ("failed", "This run ended before its first step"),
        ("stopped", "This run ended before its first step"),
    ],
)
def test_empty_chart_explains_when_it_fills(status: str, words: str) -> None:
    assert empty_words(state(status)) == words
    done = [StepRecord(1, 0.0, False, "", {}, 1.0)]
    assert empty_words(state(status, steps=done)) == "Not measured in this run"


def test_largest_gap_is_larger_in_bfloat16() -> None:
    assert (largest_gap("bfloat16"), largest_gap("float32")) == (0.5, 0.001)
