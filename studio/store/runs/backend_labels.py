"""What samples and what trains in a run, in words, and whether both compute alike. Pure."""

from typing import NamedTuple

from studio.store.projects.backends import BITS
from studio.store.runs.state import RunState
from studio.text import formatting

TITLES = {
    "sampler": "The sampler",
    "policy": "The trainer",
    "agent": "The agent’s process",
    "judge": "The judge’s process",
    "provider": "The process that asks providers",
}
AFTER = {
    "sampler": "Answers under way went on behind the tokens that they had.",
    "policy": "It went on from the last checkpoint; nothing that was stored is lost.",
}


class Programs(NamedTuple):
    """The two halves of a policy."""

    sampler: str
    trainer: str
    weights: str
    """Empty where they are stored in the precision that they compute in."""
    alike: bool
    """Whether both compute in the same precision."""


def programs(state: RunState) -> Programs | None:
    """None until the policy is loaded."""
    if not state.dtype or state.spec is None:
        return None
    backend = state.spec.config.backend
    version = state.spec.versions.get("torch", "").partition("+")[0]
    name = "Unsloth" if backend.trainer == "unsloth" else f"PyTorch {version}".strip()
    sampler = state.sampler or f"same process, {state.dtype}"
    return Programs(
        sampler=sampler,
        trainer=f"{name}, {state.dtype}",
        weights=f"in {BITS[backend.weights]}" if backend.weights in BITS else "",
        alike=sampler.rpartition(", ")[2] == state.dtype,
    )


def restarts(state: RunState) -> tuple[str, str] | None:
    """What was started again, how often, and why the last time; None where nothing was."""
    if not state.restarts:
        return None
    last = state.restarts[-1]
    count = sum(event.worker == last.worker for event in state.restarts)
    times = f" {formatting.count(count)} times" if count > 1 else ""
    title = f"{TITLES[last.worker]} was started again{times}"
    return title, f"{last.problem.message} {AFTER.get(last.worker, '')}".strip()


def precision(state: RunState) -> str:
    """The coarser one of the two, by which their log-probs can differ; empty until it is known."""
    both = (state.dtype, state.sampler.rpartition(", ")[2])
    return next((name for name in both if name == "bfloat16"), state.dtype)
