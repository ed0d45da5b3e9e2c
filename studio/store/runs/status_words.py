"""Texts, tones and icons of run states, shared by chips, rows and banners. Free of I/O."""

from dataclasses import dataclass

from engine.protocol.records.runs import Phase, RunSummary
from studio.store.runs.state import RunState

PHASES: dict[Phase, str] = {
    "loading": "loading model",
    "warming_up": "warming up",
    "validating": "validating",
    "rolling_out": "sampling",
    "reviewing": "waiting for your review",
    "training": "training",
    "publishing": "publishing",
}
RUNS_ROLLOUTS = "the script is sampling"
OUTSIDE = (
    "A script trains this project",
    "The script runs the rollouts itself. Start the script, and its run appears here.",
)


@dataclass(frozen=True)
class StateWords:
    """Text, tone and icon of a run's state."""

    text: str
    tone: str
    icon: str


PAUSING = StateWords("Pausing\u2026", "warn", "pause")
DAMAGED = StateWords("Damaged", "bad", "octagon-alert")


def run_words(run: RunSummary) -> StateWords:
    """Return text, tone and icon of a run's state by its summary, for lists."""
    if run.state == "damaged":
        return DAMAGED
    if run.kind == "baseline":
        return _baseline(run)
    if run.kind == "arena":
        return StateWords("Side by side", "muted", "columns-3")
    if run.kind == "writing":
        return StateWords("Written", "muted", "pencil")
    if run.kind == "imported":
        return StateWords("Imported", "good", "import")
    if run.kind == "evaluation":
        return _evaluation(run)
    if run.kind == "outside" and run.state == "running":
        return StateWords(f"Trained by {script_of(run)}, step {run.step}", "accent", "activity")
    match run.state:
        case "queued":
            return StateWords("Queued", "muted", "clock")
        case "starting":
            return StateWords("Starting", "accent", "activity")
        case "running":
            unit = "update" if run.kind == "sft" else "step"
            return StateWords(f"Training, {unit} {run.step} of {run.steps}", "accent", "activity")
        case "stopping":
            return StateWords("Stopping after this step", "warn", "square")
        case "reviewing":
            return StateWords(f"Step {run.step + 1} waits for your review", "human", "hand")
        case "pausing":
            return PAUSING
        case "paused":
            return StateWords(f"Paused at step {run.step}", "warn", "pause")
        case "stopped":
            return StateWords(f"Stopped at step {run.step}", "muted", "square")
        case "failed":
            return StateWords(f"Failed: {_cause(run)}, step {run.step}", "bad", "octagon-alert")
        case "finished":
            if run.kind == "sft":
                return StateWords(f"Finished, {run.step:,} updates", "good", "check")
            return StateWords(f"Finished, {_steps(run.step)}", "good", "check")


def script_of(run: RunSummary) -> str:
    """Name of the script that trains a run outside Atelier's own trainer."""
    return "ART script" if run.source.startswith("openpipe-art") else "script"


def steps_of(done: int, planned: int) -> str:
    """Describe progress in steps: `3 of 10`, or `3` if `planned` is 0 (unknown)."""
    return f"{done} of {planned}" if planned else str(done)


def no_train_words(run: RunSummary | None) -> str:
    """Return why Train is disabled for a project trained by a script; `run`: its run, if any."""
    behind = f"; it continues {run.name} after step {run.step}" if run else ""
    return f"A script trains this project. Start the script{behind}."


def _baseline(run: RunSummary) -> StateWords:
    if run.state == "finished":
        return StateWords("Baseline measured", "good", "check")
    if run.state in ("failed", "stopped"):
        return StateWords("Baseline stopped", "bad", "octagon-alert")
    return StateWords("Measuring the baseline", "accent", "activity")


def _evaluation(run: RunSummary) -> StateWords:
    done = f"{run.trajectories} of {run.attempts}"
    match run.state:
        case "finished":
            return StateWords(f"Evaluated {len(run.contestants)} models", "good", "check")
        case "failed":
            return StateWords(f"Evaluation failed: {_cause(run)}", "bad", "octagon-alert")
        case "stopped":
            return StateWords(f"Evaluation stopped at {done}", "muted", "square")
        case "pausing":
            return PAUSING
        case "paused":
            return StateWords(f"Evaluation paused at {done}", "warn", "pause")
        case "stopping":
            return StateWords("Stopping the evaluation", "warn", "square")
        case _:
            return StateWords(f"Evaluating, {done}", "accent", "activity")


def state_words(state: RunState, summary: RunSummary | None) -> StateWords:
    """Return text, tone and icon of a run's state for the header, with the phase of the step.
    `summary` None: the run is not listed."""
    if summary is not None and summary.kind == "evaluation":
        return _evaluation(summary)
    if summary is not None and summary.state == "stopping" and state.step:
        return StateWords(f"Stopping after step {state.step}", "warn", "square")
    if summary is not None and summary.state in ("starting", "pausing", "stopping"):
        return run_words(summary)
    if state.seq == 0:
        return run_words(summary) if summary else StateWords("No run yet", "muted", "circle-dashed")
    if state.status == "running" and state.phase:
        words = phase_words(state.phase, summary)
        if state.phase == "loading":
            return StateWords("Loading model", "accent", "activity")
        if state.phase == "warming_up":
            return StateWords("Warming up", "accent", "activity")
        step = max(state.step, state.done)
        if state.phase == "validating" and step == 0:
            return StateWords("Measuring the baseline", "accent", "activity")
        return StateWords(f"Step {step} · {words}", "accent", "activity")
    if summary is not None:
        return run_words(summary)
    return StateWords(state.status.capitalize(), "muted", "activity")


def phase_words(phase: Phase, summary: RunSummary | None) -> str:
    """Describe the phase of a step, by the kind of the run (`summary` None: unknown)."""
    if phase == "rolling_out" and summary is not None and summary.kind == "outside":
        return RUNS_ROLLOUTS
    return PHASES.get(phase, phase)


def empty_words(state: RunState) -> str:
    """Return why a chart of a run is empty, or when it gets its first point."""
    if state.steps:
        return "Not measured in this run"
    if state.ended:
        return "This run ended before its first step"
    return "The run is queued" if state.status == "queued" else "First point after step 1"


def _cause(run: RunSummary) -> str:
    code = run.problem.code if run.problem else ""
    return {
        "agent.import": "agent import failed",
        "sampler.not_started": "vLLM did not start",
        "sampler.not_installed": "vLLM is not installed",
        "sampler.out_of_memory": "not enough memory for vLLM",
        "sampler.died": "vLLM crashed repeatedly",
        "sampler.refused": "vLLM rejected a request",
        "policy.stale_adapter": "the sampler used an old adapter",
        "trainer.not_installed": "Unsloth is not installed",
        "model.segments_unseen": "Unsloth does not support this model",
        "model.needs_unsloth": "these weights need Unsloth",
        "backend.too_few_cards": "too few GPUs",
        "run.card_held": "the GPU is in use",
    }.get(code, code.rpartition(".")[2].replace("_", " ") or "unknown problem")


def _steps(count: int) -> str:
    return f"{count:,} step" if count == 1 else f"{count:,} steps"


def largest_gap(dtype: str) -> float:
    """Return the largest log-prob gap of one token, in nats, that rounding to `dtype` explains."""
    return 0.5 if dtype == "bfloat16" else 1e-3
