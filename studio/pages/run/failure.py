"""Error card of a failed run: the failure, saved data, and remedies."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from engine.protocol.problems import Problem
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import StartRun
from studio.store.runs.state import RunState
from studio.text import formatting
from studio.widgets.cards.error_card import ErrorCard, Remedy

MOST_WAYS = 3
SETTING_FIRST = ("memory", "agent", "config", "too_few_cards", "needs_unsloth")
"""Parts of problem codes that require a changed setting; retrying would fail again."""
USUAL_FIRST = (*("sampler.died", "policy.stale_adapter", "run.card_held"), "backend.too_few_cards")
"""Problem codes for which a retry or a changed number is preferred to other software."""
TORCH_SAMPLER = {"backend.sampler": "torch"}
TORCH_TRAINER = {"backend.trainer": "torch", "backend.weights": "full"}


@dataclass(frozen=True)
class Way:
    """Remedy with the settings of a new run (key → value; empty: its key is an action id)."""

    remedy: Remedy
    values: dict[str, Any] = field(default_factory=dict)


def failure_card(problem: Problem, state: RunState, place: str = "") -> ErrorCard:
    """Build the error card of a failed run, which emits `remedy_chosen(key)`; `place`: file and
    line of the failure (empty: unknown)."""
    when = datetime.fromtimestamp(state.at).strftime("%A %H:%M")
    foot = problem.where or (
        "Atelier does not resume automatically because the same failure would recur."
    )
    words = f"{_place(state)} {_safe(state)}".strip()
    remedies = [way.remedy for way in ways(problem, state)]
    return ErrorCard(problem.message, words, remedies, foot, when, place=place)


def ways(problem: Problem, state: RunState) -> list[Way]:
    """Return the remedies offered for the problem of a failed run, best first."""
    resume = Way(Remedy("run.resume", *_resume(state), "Resume", "play"))
    own = list(_own_ways(problem, state))
    usual = [resume]
    first = any(word in problem.code for word in SETTING_FIRST)
    if problem.hint and (first or not own or problem.code == "run.card_held"):
        title = "Change the setting first"
        setup = Way(Remedy("go.setup", title, problem.hint, "Open Setup"))
        usual = [setup, resume] if first else [resume, setup]
    if problem.code in USUAL_FIRST:
        return [usual[0], *own, *usual[1:]][:MOST_WAYS]
    return [*own, *usual][:MOST_WAYS]


def onwards(summary: RunSummary, state: RunState, values: dict[str, Any]) -> StartRun:
    """Build the request of a run that continues a failed one from its last checkpoint, with changed
    settings `values` (key → value). Without a checkpoint, request a new run of the project, whose
    files must already contain these values."""
    if not state.checkpoints:
        return StartRun(project=summary.project_path, queue=True)
    steps = {"train.steps": state.planned} if state.planned else {}
    return StartRun(
        project=summary.project_path,
        origin=f"{summary.name}@{state.checkpoints[-1].step}",
        overrides={**steps, **values},
        queue=True,
    )


def _own_ways(problem: Problem, state: RunState) -> Iterator[Way]:
    """Yield remedies specific to the problem code."""
    match problem.code:
        case "sampler.not_installed":
            yield _install()
            yield _sample_with_torch(state)
        case "trainer.not_installed":
            yield _install()
            yield _train_with_torch(state)
        case "sampler.out_of_memory":
            yield from _fewer_at_once(state)
            yield _sample_with_torch(state)
        case "sampler.not_started" | "sampler.died" | "sampler.refused" | "policy.stale_adapter":
            yield _sample_with_torch(state)
        case "model.segments_unseen":
            yield _train_with_torch(state)
        case "model.needs_unsloth":
            yield _set(
                "unsloth", "Train with Unsloth", "Supports 8-bit and 4-bit weights",
                {"backend.trainer": "unsloth"}, "Use Unsloth", state,
            )  # fmt: skip
        case "backend.too_few_cards":
            yield _set(
                "one", "Train with one process", "Slower, same result",
                {"backend.processes": 1}, "Use one process", state,
            )  # fmt: skip
        case "run.card_held":
            yield _set(
                "share", "Share the GPU with the other program", "Training may run out of memory",
                {"backend.share_card": True}, "Share the GPU", state,
            )  # fmt: skip


def _install() -> Way:
    words = (
        "Contains vLLM and Unsloth for NVIDIA GPUs. Install and select this engine, then resume."
    )
    remedy = Remedy("engines.open", "Install the GPU engine", words, "Open Settings", "download")
    return Way(remedy)


def _sample_with_torch(state: RunState) -> Way:
    words = "Needs no vLLM server; slower on a GPU"
    return _set(
        "sampler", "Sample with PyTorch instead", words, TORCH_SAMPLER, "Use PyTorch", state
    )


def _train_with_torch(state: RunState) -> Way:
    spec = state.spec
    fewer = spec is not None and spec.config.backend.weights != "full"
    words = (
        "Weights stay in full precision and take more memory" if fewer else "Works on every machine"
    )
    return _set("trainer", "Train with PyTorch instead", words, TORCH_TRAINER, "Use PyTorch", state)


def _fewer_at_once(state: RunState) -> Iterator[Way]:
    now = state.spec.config.agent.concurrency if state.spec else 1
    if now > 1:
        words = f"agent.concurrency from {now} to {now // 2}: slower sampling, same result"
        values = {"agent.concurrency": now // 2}
        yield _set("fewer", "Halve the concurrent rollouts", words, values, "Halve", state)


def _set(
    key: str, title: str, words: str, values: dict[str, Any], button: str, state: RunState
) -> Way:
    """Build a remedy that sets `values` in the project and starts from the last checkpoint."""
    kept = state.checkpoints[-1].step if state.checkpoints else None
    goes_on = f"resumes from step {kept}" if kept is not None else "starts from the beginning"
    return Way(Remedy(f"set.{key}", title, f"{words}. A new run {goes_on}.", button), values)


def _place(state: RunState) -> str:
    if state.phase is None and state.step > state.done:
        return f"The failure occurred in step {state.step}."
    return ""


def _safe(state: RunState) -> str:
    if not state.trajectories and not state.checkpoints:
        return "No data was lost: sampling had not started."
    kept = f" and the checkpoint of step {state.checkpoints[-1].step}" if state.checkpoints else ""
    steps = formatting.plural(state.done, "step")
    rows = formatting.plural(state.trajectories, "trajectory", "trajectories")
    return f"No data was lost: {steps}, {rows}{kept} are saved on disk."


def _resume(state: RunState) -> tuple[str, str]:
    """Return title and description of the Resume remedy."""
    if not state.checkpoints:
        words = "No checkpoint yet: training restarts from the base model"
        return "Retry with the same settings", words
    lost = state.done - state.checkpoints[-1].step
    again = f", {formatting.plural(lost, 'step')} to repeat" if lost else ""
    return "Resume from the last checkpoint", f"From step {state.checkpoints[-1].step}{again}"
