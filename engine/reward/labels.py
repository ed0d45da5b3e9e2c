"""Rewards of one group after a person's labels. Pure functions.

With a judge, labels change its scores. A score label replaces the judge's score; the group's other
scores then pass through the run's monotone map from judge to person, so that a lenient person does
not bias the baseline. Order labels move scores to the nearest ones that satisfy them. Without a
judge, labels change the rewards.

The changed score is the reward part `label`, which replaces the parts that it overrules. A vetoed
trajectory gets 0, or the lowest reward of the group if that is negative. An excluded one is
unscored.

Custom fields with a weight are further parts (`label/NAME`), once all trajectories of the group
that can be scored have a value.

Every computation starts from the state before any label, so that an undo restores it exactly.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.protocol.config.project import ProjectConfig, RewardConfig
from engine.protocol.problems import Problem, RolloutError
from engine.protocol.records.judging import PART as RULER
from engine.protocol.records.labels import PART, Label, Outcome, Word, field_part
from engine.protocol.records.runs import Trajectory, Unlabelled
from engine.reward.advantage.group import group_summary
from engine.reward.blend import blend
from engine.reward.label_fields import field_parts, field_values, field_weights
from engine.reward.order import (
    UNIT,
    JudgeToPerson,
    Scores,
    Span,
    scores_in_order,
    scores_with_best,
    scores_with_worst,
)

LEFT_OUT = Problem(
    code="label.excluded",
    message="You excluded this trajectory.",
    hint="Undo the label to include the trajectory again.",
)


def apply_labels(
    config: ProjectConfig,
    siblings: Sequence[Trajectory],
    labels: Sequence[Label],
    to_person: JudgeToPerson,
) -> list[Trajectory]:
    """Return copies of a group's trajectories with the scores and rewards that result from these
    labels, oldest first; effects of labels applied before are removed. `to_person` maps judge
    scores to a person's."""
    bare = [without_labels(one) for one in siblings]
    words = [word for label in labels for word in label.words]
    ruling = [word for label in labels if label.effect != "none" for word in label.words]
    judged = config.judge.enabled
    opinions = {one.id: one.parts.get(RULER) if judged else one.reward for one in bare}
    now = scores_with_labels(opinions, ruling, to_person if judged else JudgeToPerson([]))
    changed = [
        _rewarded(config, one, now.scores[one.id], one.id in now.spoken)
        if now.scores[one.id] != opinions[one.id]
        else one
        for one in bare
    ]
    values = field_values(config, words)
    counted = field_values(config, ruling)
    scorable = [one.id for one in bare if may_be_scored(one)]
    parts = field_parts(config, counted, scorable)
    changed = [
        _with_fields(config, before, one, parts[one.id]) if one.id in parts else one
        for before, one in zip(bare, changed, strict=True)
    ]
    least = min([0.0, *(one.reward for one in changed if one.reward is not None)])
    found = []
    for before, one in zip(bare, changed, strict=True):
        own = [word.kind for word in ruling if word.trajectory_id == one.id]
        if "exclude" in own:
            one = one.model_copy(update={"reward": None, "problem": LEFT_OUT})
        elif "veto" in own:
            update = {"reward": least, "parts": {PART: least}, "problem": None}
            one = one.model_copy(update=update)
        one = one.model_copy(update={"fields": values.get(one.id, {})})
        found.append(_marked(before, one, words))
    return found


def without_labels(one: Trajectory) -> Trajectory:
    """Copy of a trajectory with the reward it had before any label, and without its labels."""
    update: dict[str, object] = {"labels": (), "fields": {}, "unlabelled": None}
    if kept := one.unlabelled:
        update |= {"reward": kept.reward, "parts": kept.parts, "problem": kept.problem}
    return one.model_copy(update=update)


class LabelledScores(NamedTuple):
    """Scores of a group after labels."""

    scores: dict[str, float | None]
    spoken: set[str]
    """Trajectories whose scores a label has set or moved; other scores were at most mapped."""


def scores_with_labels(
    scores: Scores, words: Sequence[Word], to_person: JudgeToPerson
) -> LabelledScores:
    """Scores by trajectory id after a person's statements `words`: score labels first (the latest
    of a trajectory counts), then order, best and worst labels in sequence. If there are score
    labels, `to_person` maps the scores of the other trajectories to the person's scale."""
    given = {
        word.trajectory_id: word.value
        for word in words
        if word.kind == "score" and word.trajectory_id in scores and word.value is not None
    }
    found: dict[str, float | None] = {}
    for name, score in scores.items():
        mapped = to_person(score) if given and score is not None else score
        found[name] = given.get(name, mapped)
    start, span = dict(found), _span(found)
    for word in words:
        who = word.trajectory_id
        if word.kind == "order":
            layers = [[name for name in layer if name in found] for layer in word.order]
            found |= scores_in_order(found, [layer for layer in layers if layer], span)
        elif word.kind == "best" and who in found:
            found |= scores_with_best(found, who, span)
        elif word.kind == "worst" and who in found:
            found |= scores_with_worst(found, who, span)
    moved = {name for name in found if found[name] != start[name]}
    return LabelledScores(found, moved | {name for name in given if name})


def outcomes(
    config: ProjectConfig, before: Sequence[Trajectory], after: Sequence[Trajectory]
) -> list[Outcome]:
    """Compare rewards and advantages of a group's trajectories before and after a label; both
    sequences have the same trajectories in the same order."""
    kind = config.train.algorithm.advantage
    sides = [group_summary(kind, list(side)).advantages for side in (before, after)]
    return [
        Outcome(
            trajectory_id=one.id,
            index=one.index,
            reward=one.reward,
            advantage=was,
            new_reward=other.reward,
            new_advantage=will,
        )
        for one, other, was, will in zip(before, after, *sides, strict=True)
    ]


def may_be_scored(one: Trajectory) -> bool:
    """Whether the rollout itself succeeded, so that a judge or person can still score the
    trajectory."""
    problem = one.unlabelled.problem if one.unlabelled else one.problem
    return problem is None or problem.code.partition(".")[0] in ("judge", "reward", "label")


def _rewarded(
    config: ProjectConfig, one: Trajectory, score: float | None, spoken: bool
) -> Trajectory:
    assert score is not None
    judged = config.judge.enabled
    kept = {n: v for n, v in one.parts.items() if n != RULER} if judged else {}
    name = PART if spoken or not judged else RULER
    parts = {**kept, name: score}
    try:
        reward = blend(_weighing(config.reward, judged), parts, {**one.parts, **one.metrics})
    except RolloutError as error:
        return one.model_copy(update={"parts": parts, "reward": None, "problem": error.problem})
    return one.model_copy(update={"parts": parts, "reward": reward, "problem": None})


def _with_fields(
    config: ProjectConfig, before: Trajectory, one: Trajectory, values: Mapping[str, float]
) -> Trajectory:
    """Trajectory `one` with custom fields as further reward parts. A reward without parts is its
    own part `reward`."""
    weights = {field_part(name): weight for name, weight in field_weights(config).items()}
    known = one.parts or ({} if one.reward is None else {"reward": one.reward})
    parts = {**known, **values}
    usual = _weighing(config.reward, config.judge.enabled) if PART in one.parts else config.reward
    weighing = usual.model_copy(update={"weights": {**usual.weights, **weights}})
    try:
        reward = blend(weighing, parts, {**before.parts, **one.metrics})
    except RolloutError as error:
        return one.model_copy(update={"parts": parts, "reward": None, "problem": error.problem})
    return one.model_copy(update={"parts": parts, "reward": reward, "problem": None})


def _weighing(config: RewardConfig, judged: bool) -> RewardConfig:
    """Reward settings for labelled scores: the part `label` has the weight of the judge's part.
    Without a judge no part is required."""
    weights = dict(config.weights)
    required = tuple(name for name in config.required if judged and name != RULER)
    if judged and RULER in weights:
        weights.setdefault(PART, weights[RULER])
    return config.model_copy(update={"weights": weights, "required": required})


def _marked(before: Trajectory, now: Trajectory, words: Sequence[Word]) -> Trajectory:
    """Trajectory with the kinds of its labels, and the original reward for an undo."""
    kinds = [w.kind for w in words if w.trajectory_id == now.id]
    kinds += [w.kind for w in words if w.kind == "order" and any(now.id in la for la in w.order)]
    update: dict[str, object] = {"labels": tuple(dict.fromkeys(kinds))}
    if (now.reward, now.parts, now.problem) != (before.reward, before.parts, before.problem):
        update["unlabelled"] = Unlabelled(
            reward=before.reward, parts=before.parts, problem=before.problem
        )
    return now.model_copy(update=update)


def _span(scores: Scores) -> Span:
    """Score range [0, 1], extended to the given scores."""
    known = [score for score in scores.values() if score is not None]
    return Span(min([UNIT.low, *known]), max([UNIT.high, *known]))
