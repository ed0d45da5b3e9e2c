"""Why is nothing learned? Plain-words findings from the metrics so far. Pure."""

from collections.abc import Sequence

from engine.protocol.records import Finding

Metrics = dict[str, float]


def findings(history: Sequence[Metrics], group_size: int, max_tokens: int) -> list[Finding]:
    """What is worth looking at now, worst first, at most three; `history` has a row per step."""
    if not history:
        return []
    last, recent = history[-1], history[-5:]
    found = [
        _unscored(last),
        _no_signal(last, recent),
        _truncated(last, max_tokens),
        _collapsed(history),
        _apart(last),
    ]
    return [finding for finding in found if finding][:3]


def _unscored(last: Metrics) -> Finding | None:
    count, total = last.get("unscored", 0), last.get("trajectories", 0)
    if not total or count / total < 0.1:
        return None
    return Finding(
        code="unscored",
        title=f"{count:.0f} of {total:.0f} attempts are unscored.",
        words="The agent failed, timed out or returned no reward. They are left out, not scored 0.",
        suggestion="Read what they say; most often one mistake in the agent explains all.",
        where="unscored",
    )


def _no_signal(last: Metrics, recent: Sequence[Metrics]) -> Finding | None:
    share = _mean([m.get("groups/no_signal", 0) for m in recent])
    if share < 0.3:
        return None
    mean = last.get("reward/mean", 0)
    best = last.get("reward/max", mean)
    solved = best - mean < 1e-6
    why = (
        "All attempts at them score alike: they are solved, or nobody tries a better answer."
        if solved
        else "All attempts at them score the same: it does not meet the better answer."
    )
    suggestion = (
        "Take harder scenarios, or stop here if the reward is as high as it gets."
        if solved
        else "Give partial credit in the reward, warm up on a few demonstrations, or more attempts."
    )
    return Finding(
        code="no_signal",
        title=f"{share:.0%} of the groups gave no signal.".replace("%", " %"),
        words=why,
        suggestion=suggestion,
        where="no_signal",
    )


def _truncated(last: Metrics, max_tokens: int) -> Finding | None:
    share = last.get("truncated", 0)
    if share < 0.25:
        return None
    return Finding(
        code="truncated",
        title=f"{share:.0%} of attempts hit the {max_tokens}-token limit.".replace("%", " %"),
        words="They end in the middle of what they say, and their reward is for half an answer.",
        suggestion="Raise train.max_tokens, or ask for shorter answers in the prompt.",
        where="truncated",
    )


def _collapsed(history: Sequence[Metrics]) -> Finding | None:
    values = [m["entropy"] for m in history if "entropy" in m]
    if len(values) < 5 or values[-1] > 0.05 or values[-1] > values[0] / 10:
        return None
    return Finding(
        code="collapsed",
        title="It has almost stopped trying other answers.",
        words=f"Entropy fell from {values[0]:.2f} to {values[-1]:.3f} nats per token.",
        suggestion="Stop here, or branch from an earlier checkpoint with a lower learning rate.",
    )


def _apart(last: Metrics) -> Finding | None:
    gap = last.get("logprob_gap/mean", 0)
    if gap < 0.2:
        return None
    return Finding(
        code="apart",
        title="Sampler and trainer disagree.",
        words=f"They differ by {gap:.2f} nats per token on average.",
        suggestion="Set model.dtype to float32, or lower the learning rate.",
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
