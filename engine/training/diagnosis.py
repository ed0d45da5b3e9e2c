"""Diagnosis of a run: plain-words findings on why a policy does not learn, from metrics. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.protocol.events.run import ValidationFinished
from engine.protocol.problems import Problem
from engine.protocol.records.comparison import EQUAL
from engine.protocol.records.runs import Finding, Trajectory

Metrics = dict[str, float]

GAP_NATS = 0.1
"""Mean log-prob gap from which sampler and trainer disagree: the odds of an average token differ by
10 %. Rounding in bfloat16 stays below (0.02 to 0.06 on the starter model)."""
LEAST_ESS = 0.5
"""Minimum effective sample size as a share: below half, few samples dominate the importance-sampled
mean (Doucet and Johansen, 2009, a tutorial on particle filtering)."""
MOST_CLIPPED = 0.2
"""Maximum share of clipped tokens: more means that sampler and trainer have diverged."""
MOST_MASKED = 0.1
STEPS_OF_ENTROPY = 5
STEPS_OF_DRIFT = 5
LEAST_UNSCORED = 0.1
EXCLUDED_CODE = "label.excluded"
"""Problem code of rollouts that a person has excluded."""
NOT_RULES = ("reward/part/ruler", "reward/part/label", "reward/part/overlong")


class Cause(NamedTuple):
    """Cause of unscored rollouts of a step."""

    problem: Problem
    """Problem of the first of these rollouts."""
    rollouts: int


def unscored_causes(trajectories: Iterable[Trajectory]) -> list[Cause]:
    """Problems of unscored rollouts, one per problem code with its number of rollouts, most
    frequent first. Rollouts that a person excluded do not count."""
    problems = [one.problem for one in trajectories if one.reward is None and one.problem]
    found: dict[str, list[Problem]] = {}
    for problem in problems:
        if problem.code != EXCLUDED_CODE:
            found.setdefault(problem.code, []).append(problem)
    causes = [Cause(alike[0], len(alike)) for alike in found.values()]
    return sorted(causes, key=lambda cause: -cause.rollouts)


def findings(
    history: Sequence[Metrics],
    group_size: int,
    max_tokens: int,
    causes: Sequence[Cause] = (),
    validations: Sequence[ValidationFinished] = (),
) -> list[Finding]:
    """Return the most important findings on a run, worst first, at most three. `history` has one
    row of metrics per step, `causes` the reasons for unscored rollouts of the last step,
    `validations` all so far. `max_tokens` is 0 if an external script sets the limit of
    completions."""
    if not history:
        return []
    last, recent = history[-1], history[-5:]
    found = [
        *_unscored(last, causes),
        _worse(validations),
        _fooled(recent),
        _addressed(last),
        _pleasing(history),
        _padding(history),
        _no_signal(last, recent),
        _truncated(last, max_tokens),
        _collapsed(history),
        _scattered(history, validations),
        _apart(recent) or _few(recent) or _clipped(recent),
        _masked(recent),
    ]
    return [finding for finding in found if finding][:3]


FAMILIES = {
    "agent": (
        "The agent failed.",
        "Read the output of one rollout; all failures may have the same cause.",
    ),
    "gateway": ("A request of the agent was rejected.", "Read the messages of one rollout."),
    "reward": ("The agent returned no valid reward.", "Return the required reward parts."),
    "judge": (
        "The judge returned no score; the agent is not the cause.",
        "Read the judge's replies in the log.",
    ),
    "rollout": ("The rollout itself failed.", "Read the output of one rollout."),
}
"""First part of a problem's code → sentence on what failed, and a default hint."""


def _unscored(last: Metrics, causes: Sequence[Cause]) -> list[Finding]:
    """Findings on the two most frequent causes that affect at least a tenth of the rollouts."""
    total = last.get("trajectories", 0)
    found = []
    for number, (problem, count) in enumerate(causes[:2]):
        if not total or count / total < LEAST_UNSCORED:
            continue
        who, hint = FAMILIES.get(problem.code.partition(".")[0], FAMILIES["rollout"])
        found.append(
            Finding(
                code="unscored" if number == 0 else "unscored_too",
                title=f"{count} of {total:.0f} rollouts are unscored.",
                words=f"{who} {problem.message} Unscored rollouts are excluded, not scored 0.",
                suggestion=problem.hint or hint,
                where="unscored",
            )
        )
    return found


def _fooled(recent: Sequence[Metrics]) -> Finding | None:
    tests = [m["judge/canaries"] for m in recent if "judge/canaries" in m]
    if not tests or tests[-1] >= 1:
        return None
    return Finding(
        code="fooled",
        title="The judge was fooled by a canary trajectory.",
        words="A trajectory that ignores its task was scored above the median. The "
        "judge may not follow the rubric.",
        suggestion="Read the judge's prompt and reply in the log. Make the rubric more specific or "
        "choose another judge.",
        where="chart:judge",
        action="pause",
    )


def _addressed(last: Metrics) -> Finding | None:
    share, total = last.get("watch/addresses_judge", 0.0), last.get("trajectories", 0.0)
    if not share:
        return None
    return Finding(
        code="addressed",
        title=f"{share * total:.0f} of {total:.0f} trajectories seem to address the judge.",
        words="They contain text that addresses a grader instead of the task.",
        suggestion="Read these trajectories. A veto constraint removes their reward in later runs.",
        where="marked",
        action="veto:addresses_judge",
    )


def _pleasing(history: Sequence[Metrics]) -> Finding | None:
    """Finding for a judge's reward part that rises while rules or labels fall."""
    for other, who in (("reward/part/label", "your labels"), ("rules", "the rules")):
        known = [
            (m["reward/part/ruler"], value)
            for m in history
            if "reward/part/ruler" in m and (value := _other(m, other)) is not None
        ]
        if len(known) < 2 * STEPS_OF_DRIFT:
            continue
        first, last = known[:STEPS_OF_DRIFT], known[-STEPS_OF_DRIFT:]
        rose = _mean([a for a, _ in last]) - _mean([a for a, _ in first])
        fell = _mean([b for _, b in first]) - _mean([b for _, b in last])
        if rose > 0.1 and fell > 0.05:
            return Finding(
                code="pleasing",
                title="Judge reward keeps rising while rule-based rewards fall.",
                words="Possible reward hacking: since the first steps the judge's reward rose by "
                f"{rose:.2f} while {who} fell by "
                f"{fell:.2f}.",
                suggestion="Grade a few of the best trajectories blind before you continue "
                "training.",
                where="chart:judge",
                action="pause",
            )
    return None


def _padding(history: Sequence[Metrics]) -> Finding | None:
    """Finding for rollouts that get longer or more repetitive while the judge's part rises."""
    known = [m for m in history if "reward/part/ruler" in m and "tokens/completion_mean" in m]
    if len(known) < 2 * STEPS_OF_DRIFT:
        return None
    first, last = known[:STEPS_OF_DRIFT], known[-STEPS_OF_DRIFT:]
    rose = _of(last, "reward/part/ruler") - _of(first, "reward/part/ruler")
    before, now = _of(first, "tokens/completion_mean"), _of(last, "tokens/completion_mean")
    again, once = _of(last, "watch/repetition"), _of(first, "watch/repetition")
    if rose < 0.05 or (now < 1.5 * before and again < once + 0.15):
        return None
    return Finding(
        code="padding",
        title="Trajectories grow longer, and the judge rewards it.",
        words=f"Length went from {before:.0f} to {now:.0f} tokens, repetition from {once:.0%} to "
        f"{again:.0%}, and the judge's reward rose by {rose:.2f}.".replace("%", " %"),
        suggestion="Penalise length in the reward or the rubric, unless long answers are wanted.",
        where="chart:length",
    )


def _other(metrics: Metrics, name: str) -> float | None:
    """Value of a reward part, or for `rules` the sum of all rule-based parts; None if absent."""
    if name != "rules":
        return metrics.get(name)
    parts = [
        v
        for k, v in metrics.items()
        if k.startswith("reward/part/") and k not in NOT_RULES and "/label/" not in k
    ]
    return sum(parts) if parts else None


def _no_signal(last: Metrics, recent: Sequence[Metrics]) -> Finding | None:
    share = _mean([m.get("groups/no_signal", 0) for m in recent])
    if share < 0.3:
        return None
    mean = last.get("reward/mean", 0)
    best = last.get("reward/max", mean)
    solved = best - mean < 1e-6
    why = (
        "Every rollout in these groups got the same reward: their scenarios are solved, or no "
        "rollout found a better answer."
        if solved
        else "Every rollout in these groups got the same reward, so they contribute no gradient."
    )
    suggestion = (
        "Use harder scenarios, or stop here if the reward is as high as it gets."
        if solved
        else "Give partial credit in the reward, warm up on a few demonstrations, or sample "
        "more rollouts."
    )
    return Finding(
        code="no_signal",
        title=f"{share:.0%} of the groups gave no signal.".replace("%", " %"),
        words=why,
        suggestion=suggestion,
        where="no_signal",
    )


def _truncated(last: Metrics, max_tokens: int) -> Finding | None:
    """Finding for truncated completions, with the most frequent limit."""
    share = last.get("truncated", 0)
    if share < 0.25:
        return None
    limits = {
        "max_tokens": (f"the limit of {max_tokens} tokens (train.max_tokens)", "train.max_tokens"),
        "agent": ("the token limit of the agent's own requests", "max_tokens in the agent"),
        "context": ("the context limit (model.max_context)", "model.max_context"),
    }
    known = {name: last.get(f"truncated/{name}", 0.0) for name in limits}
    cut_by = max(known, key=lambda name: known[name]) if max_tokens else "agent"
    limit, raised = limits[cut_by]
    return Finding(
        code="truncated",
        title=f"{share:.0%} of the rollouts were truncated.".replace("%", " %"),
        words=f"Their completions reached {limit} and were scored although incomplete.",
        suggestion=f"Raise {raised}, or ask for shorter answers in the prompt.",
        where="truncated",
    )


def _collapsed(history: Sequence[Metrics]) -> Finding | None:
    values = [m["entropy"] for m in history if "entropy" in m]
    if len(values) < STEPS_OF_ENTROPY or values[-1] > 0.05 or values[-1] > values[0] / 10:
        return None
    return Finding(
        code="collapsed",
        title="The policy has almost stopped exploring.",
        words=f"Entropy fell from {values[0]:.2f} to {values[-1]:.3f} nats per token.",
        suggestion="Stop here, or branch from an earlier checkpoint with a lower learning rate.",
        where="chart:entropy",
    )


def _worse(validations: Sequence[ValidationFinished]) -> Finding | None:
    """Finding for a last validation that is worse than the first one: a win rate whose interval is
    below one half, or mean rewards whose intervals do not overlap."""
    if len(validations) < 2:
        return None
    first, last = validations[0], validations[-1]
    if rate := last.win_rates.get(last.step):
        worse = rate.high < EQUAL
        words = (
            f"The judge prefers the baseline: the win rate after step {last.step} is "
            f"{100 * rate.mean:.0f} % (95 % interval {100 * rate.low:.0f} % to "
            f"{100 * rate.high:.0f} %)."
        )
    elif first.reward and last.reward:
        worse = last.reward.high < first.reward.low
        words = (
            f"Validation reward fell from {first.reward.mean:.2f} to {last.reward.mean:.2f} after "
            f"step {last.step}, and the 95 % intervals do not overlap."
        )
    else:
        return None
    if not worse:
        return None
    return Finding(
        code="worse_than_baseline",
        title="The policy is worse than the baseline.",
        words=words,
        suggestion="Branch from an earlier checkpoint with a lower train.lr, or check what the "
        "reward prefers in the validation examples.",
        where="chart:win_rate" if last.win_rates else "chart:reward",
    )


def _scattered(
    history: Sequence[Metrics], validations: Sequence[ValidationFinished]
) -> Finding | None:
    """Finding for entropy that doubles without more reward: the policy turns into noise."""
    known = [m for m in history if "entropy" in m and "reward/mean" in m]
    if len(known) < 2 * STEPS_OF_ENTROPY:
        return None
    first, last = known[:STEPS_OF_ENTROPY], known[-STEPS_OF_ENTROPY:]
    before, now = _of(first, "entropy"), _of(last, "entropy")
    if now < 2 * before or now < before + 0.5:
        return None
    if "reward/part/ruler" in known[-1]:  # relative within groups, so its mean shows no progress
        rates = validations[-1].win_rates if validations else {}
        if not rates or (rate := rates[max(rates)].mean) > EQUAL:
            return None
        result = f"the win rate against the baseline is {100 * rate:.0f} %"
    else:
        lost, reward = _of(first, "reward/mean"), _of(last, "reward/mean")
        if reward > lost:
            return None
        result = f"the reward went from {lost:.2f} to {reward:.2f}"
    return Finding(
        code="scattered",
        title="Completions get more random, not better.",
        words=f"Entropy rose from {before:.2f} to {now:.2f} nats per token, while {result}.",
        suggestion="Branch from an earlier checkpoint with a lower train.lr.",
        where="chart:entropy",
    )


def _apart(recent: Sequence[Metrics]) -> Finding | None:
    gap = _of(recent, "logprob_gap/mean")
    if gap < GAP_NATS:
        return None
    return Finding(
        code="apart",
        title="Sampler and trainer disagree.",
        words=f"Their log-probs differ by {gap:.2f} nats per token on average, so the update "
        "assumes probabilities that differ from those used for sampling.",
        suggestion="Set model.dtype to float32, or lower train.lr.",
        where="chart:gap",
    )


def _few(recent: Sequence[Metrics]) -> Finding | None:
    share = _of(recent, "ess", 1)
    if share >= LEAST_ESS:
        return None
    largest = max(m.get("ratio/max", 1) for m in recent)
    return Finding(
        code="few_count",
        title="Few tokens determine the update.",
        words=f"The effective sample size is {share:.0%} of the tokens; ".replace("%", " %")
        + f"the largest importance ratio is {largest:.0f}.",
        suggestion="Set model.dtype to float32, lower train.lr, or mask such tokens with "
        "train.algorithm.correction.",
        where="chart:ess",
    )


def _clipped(recent: Sequence[Metrics]) -> Finding | None:
    low, high = _of(recent, "clip/low"), _of(recent, "clip/high")
    if low + high < MOST_CLIPPED:
        return None
    return Finding(
        code="clipped",
        title=f"{low + high:.0%} of the tokens lie outside the clip range.".replace("%", " %"),
        words=f"{high:.0%} above and {low:.0%} below: ".replace("%", " %")
        + "trainer and sampler probabilities differ by more than the range allows.",
        suggestion="Lower train.lr, or widen the range in train.algorithm.loss.",
        where="chart:clip",
    )


def _masked(recent: Sequence[Metrics]) -> Finding | None:
    share = _of(recent, "masked")
    if share < MOST_MASKED:
        return None
    return Finding(
        code="masked",
        title=f"{share:.0%} of the tokens are left out of the update.".replace("%", " %"),
        words="The correction drops tokens, or whole trajectories, whose sampler and trainer "
        "probabilities differ too much.",
        suggestion="Set model.dtype to float32, or widen train.algorithm.correction.",
        where="chart:clip",
    )


def _of(steps: Sequence[Metrics], key: str, otherwise: float = 0.0) -> float:
    """Mean of a metric over the steps that have it; `otherwise` if none has."""
    known = [m[key] for m in steps if key in m]
    return _mean(known) if known else otherwise


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
