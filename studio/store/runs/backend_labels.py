"""Sampling and training backend of a run as text, and whether their precision matches. Free of
I/O."""

from typing import NamedTuple

from studio.store.projects.backends import BITS
from studio.store.runs.state import RunState
from studio.text import formatting

TITLES = {
    "sampler": "The sampler",
    "policy": "The trainer",
    "agent": "The agent’s process",
    "judge": "The judge’s process",
    "provider": "The API client’s process",
    "cluster": "The connection to the cluster",
    "losses": "The loss process",
}
AFTER = {
    "sampler": "Unfinished completions continued from their last token.",
    "policy": "The run resumed from the last checkpoint; stored data is not lost.",
    "cluster": "The run resumed from the last checkpoint; stored data is not lost.",
    "losses": "The run resumed from the last checkpoint; stored data is not lost.",
}


class Programs(NamedTuple):
    """Texts of the sampling and training backend of a policy."""

    sampler: str
    trainer: str
    weights: str
    """Quantization of the weights; empty if stored in the precision of the computation."""
    alike: bool
    """Whether both compute in the same precision."""
    cluster: str = ""
    """Measured behaviour of the cluster; empty without one."""


def programs(state: RunState) -> Programs | None:
    """Return the backends of a run; None until the policy is loaded."""
    if not state.dtype or state.spec is None:
        return None
    if state.cluster is not None:
        return Programs(state.sampler, state.sampler, "", True, state.cluster.words)
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
    """Return title (worker, number of restarts) and cause of the last worker restart, or None."""
    if not state.restarts:
        return None
    last = state.restarts[-1]
    count = sum(event.worker == last.worker for event in state.restarts)
    times = f" {formatting.count(count)} times" if count > 1 else ""
    title = f"{TITLES[last.worker]} was restarted{times}"
    return title, f"{last.problem.message} {AFTER.get(last.worker, '')}".strip()


def precision(state: RunState) -> str:
    """Return the lower precision of sampler and trainer, which bounds the log-prob gap."""
    both = (state.dtype, state.sampler.rpartition(", ")[2])
    return next((name for name in both if name == "bfloat16"), state.dtype)
