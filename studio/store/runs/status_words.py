"""States as words, tones and icons: one table for chips, rows and banners. Pure."""

from dataclasses import dataclass

from engine.protocol.records.runs import Phase, RunSummary
from studio.store.runs.state import RunState

PHASES: dict[Phase, str] = {
    "loading": "loading the model",
    "warming_up": "warming up",
    "validating": "testing",
    "rolling_out": "rolling out",
    "reviewing": "waiting for your review",
    "training": "training",
    "publishing": "publishing",
}
MAKES_ATTEMPTS = "the script makes its attempts"
OUTSIDE = (
    "A script trains this project",
    "It makes the attempts itself. Start it, and its run shows here as it goes on.",
)


@dataclass(frozen=True)
class StateWords:
    """What a chip shows: words, a tone of the theme, an icon."""

    text: str
    tone: str
    icon: str


DAMAGED = StateWords("Damaged", "bad", "octagon-alert")


def run_words(run: RunSummary) -> StateWords:
    """A run in a list."""
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
        case "paused":
            return StateWords(f"Paused at step {run.step}", "warn", "pause")
        case "stopped":
            return StateWords(f"Stopped at step {run.step}", "muted", "square")
        case "failed":
            return StateWords(f"Stopped: {_cause(run)}, step {run.step}", "bad", "octagon-alert")
        case "finished":
            if run.kind == "sft":
                return StateWords(f"Taught, {run.step:,} updates", "good", "check")
            return StateWords(f"Finished, {_steps(run.step)}", "good", "check")
        case "damaged":
            return DAMAGED


def script_of(run: RunSummary) -> str:
    """Who makes the attempts of an outside run."""
    return "ART script" if run.source.startswith("openpipe-art") else "script"


def steps_of(done: int, planned: int) -> str:
    """So many of so many; only a script outside knows how many its run will have."""
    return f"{done} of {planned}" if planned else str(done)


def no_train_words(run: RunSummary | None) -> str:
    """Why Train is off in a project whose script makes the attempts."""
    behind = f"; {run.name} goes on behind step {run.step}" if run else ""
    return f"A script trains this project: start it{behind}."


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
            return StateWords(f"Evaluation stopped: {_cause(run)}", "bad", "octagon-alert")
        case "stopped":
            return StateWords(f"Evaluation stopped at {done}", "muted", "square")
        case "paused":
            return StateWords(f"Evaluation paused at {done}", "warn", "pause")
        case "stopping":
            return StateWords("Ending the evaluation", "warn", "square")
        case _:
            return StateWords(f"Evaluating, {done}", "accent", "activity")


def state_words(state: RunState, summary: RunSummary | None) -> StateWords:
    """The header's chip: finer than a list's, with the phase."""
    if summary is not None and summary.kind == "evaluation":
        return _evaluation(summary)
    if summary is not None and summary.state == "stopping" and state.step:
        return StateWords(f"Stopping after step {state.step}", "warn", "square")
    if summary is not None and summary.state in ("starting", "stopping"):
        return run_words(summary)
    if state.seq == 0:
        return run_words(summary) if summary else StateWords("No run yet", "muted", "circle-dashed")
    if state.status == "running" and state.phase:
        words = phase_words(state.phase, summary)
        if state.phase == "loading":
            return StateWords("Loading the model", "accent", "activity")
        if state.phase == "warming_up":
            return StateWords("Warming up", "accent", "activity")
        step = max(state.step, state.done)
        if state.phase == "validating" and step == 0:
            return StateWords("Testing before training", "accent", "activity")
        return StateWords(f"Step {step} · {words}", "accent", "activity")
    if summary is not None:
        return run_words(summary)
    return StateWords(state.status.capitalize(), "muted", "activity")


def phase_words(phase: Phase, summary: RunSummary | None) -> str:
    """What is done now, and by whom."""
    if phase == "rolling_out" and summary is not None and summary.kind == "outside":
        return MAKES_ATTEMPTS
    return PHASES.get(phase, phase)


def empty_words(state: RunState) -> str:
    """Of a chart that has nothing to show."""
    if state.steps:
        return "This run does not measure it"
    if state.ended:
        return "This run ended before its first step"
    return "It waits in the queue" if state.status == "queued" else "First point after step 1"


def _cause(run: RunSummary) -> str:
    code = run.problem.code if run.problem else ""
    return {
        "policy.out_of_memory": "out of memory",
        "store.disk_full": "disk full",
        "agent.import": "the agent does not import",
        "sampler.not_started": "vLLM did not start",
        "sampler.not_installed": "no vLLM here",
        "sampler.out_of_memory": "too little memory for vLLM",
        "sampler.died": "vLLM kept ending",
        "sampler.refused": "vLLM refused",
        "policy.stale_adapter": "the sampler kept an old adapter",
        "trainer.not_installed": "no Unsloth here",
        "model.segments_unseen": "Unsloth cannot train this model",
        "model.needs_unsloth": "these weights need Unsloth",
        "backend.too_few_cards": "too few cards",
        "run.card_held": "the card is taken",
    }.get(code, code.rsplit(".", 1)[-1].replace("_", " ") or "a problem")


def _steps(count: int) -> str:
    return f"{count:,} step" if count == 1 else f"{count:,} steps"


def largest_gap(dtype: str) -> float:
    """The largest log-prob gap of one token that rounding explains, in nats."""
    return 0.5 if dtype == "bfloat16" else 1e-3
