"""Conditions for resuming and extending a run; refusals as messages."""

from engine.protocol.problems import Refused, StoreError
from engine.protocol.records.runs import RunSummary

WEIGHTLESS = ("imported", "arena", "writing")


def refuse_extension(run: RunSummary) -> None:
    """Raises Refused where steps cannot be added."""
    match run.kind:
        case "evaluation":
            raise Refused.of("run.no_steps", "An evaluation has no steps that could be added.")
        case "outside":
            raise Refused.of(
                "run.no_steps", "How many steps there are is for the script to say.", "Change it."
            )
        case "sft":
            raise Refused.of(
                "run.no_steps",
                "The updates of an SFT run are those of its epochs.",
                "Start another one from it, with other sft.epochs.",
            )


def refuse_resumption(run: RunSummary, steps: int | None) -> None:
    """Raises Refused where nothing can go on, with `steps` in all or as many as were planned, and
    StoreError for a damaged run."""
    if run.state == "damaged" and run.problem:
        raise StoreError(run.problem)
    if run.kind == "outside":
        raise Refused.of(
            "run.outside",
            f"A script trains {run.name}: only it can make rollouts.",
            f"Start it again; it resumes after step {run.step}.",
        )
    if run.kind in WEIGHTLESS:
        raise Refused.of(
            "run.imported",
            "This run has no weights of its own to train further.",
            "Start a run of the project instead.",
        )
    if run.state != "finished":
        return
    if run.kind in ("evaluation", "sft"):
        what = "evaluation" if run.kind == "evaluation" else "SFT run"
        raise Refused.of("run.finished", f"This {what} has finished.", "Start another one.")
    if not (steps and steps > run.step):
        raise Refused.of(
            "run.finished",
            f"This run has finished its {run.steps} steps.",
            "Train more by asking for more steps.",
        )
