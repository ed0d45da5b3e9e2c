"""A failed run as an error card: what stopped and why, what is safe, what to try."""

from datetime import datetime

from engine.protocol.problems import Problem
from studio import figures
from studio.store.run_state import RunState
from studio.widgets.error_card import ErrorCard, Remedy


def failure_card(problem: Problem, state: RunState) -> ErrorCard:
    """`remedy_chosen` carries an action id."""
    remedies = [
        Remedy(
            "run.resume", "Go on from the last checkpoint", _resume_words(state), "Resume", "play"
        )
    ]
    if problem.hint:
        setup = Remedy("go.setup", "Change the setting first", problem.hint, "Open Setup")
        memory = "memory" in problem.code or "agent" in problem.code or "config" in problem.code
        remedies = [setup, *remedies] if memory else [*remedies, setup]
    when = datetime.fromtimestamp(state.at).strftime("%A %H:%M")
    foot = problem.where or "Atelier does not restart by itself after this: it would happen again."
    words = f"{_place(state)} {_safe(state)}".strip()
    return ErrorCard(problem.message, words, remedies, foot, when)


def _place(state: RunState) -> str:
    if state.phase is None and state.step > state.done:
        return f"It happened in step {state.step}."
    return ""


def _safe(state: RunState) -> str:
    kept = f" and the checkpoint of step {state.checkpoints[-1].step}" if state.checkpoints else ""
    steps = figures.plural(state.done, "step")
    rows = figures.plural(state.trajectories, "trajectory", "trajectories")
    return f"Nothing is lost: {steps}, {rows}{kept} are safe on disk."


def _resume_words(state: RunState) -> str:
    if not state.checkpoints:
        return "No checkpoint yet: it starts again from the base model"
    lost = state.done - state.checkpoints[-1].step
    again = f", {figures.plural(lost, 'step')} to do again" if lost else ""
    return f"From step {state.checkpoints[-1].step}{again}"
