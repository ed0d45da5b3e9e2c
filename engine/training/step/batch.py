"""Groups of trajectories → training items of the policy. Pure.

`rows` finds the trainable sequences, `train_items` gives their tokens advantages,
`split_into_batches` makes one batch per update. Log-probs and values from the policy are added if
`required_scores` asks for them.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from engine.policy.base import ImageInput, ScoreBatch, Scores, TrainBatch, TrainItem
from engine.protocol.config.algorithm import Algorithm, AnchorCredit, ValueCredit
from engine.protocol.config.project import TrainConfig
from engine.protocol.records.conversations import Branch
from engine.protocol.records.runs import Trajectory
from engine.reward.advantage import credit


class Row(NamedTuple):
    """Branch (token sequence) of a trajectory that can be trained on, with its group number."""

    group: int
    trajectory: Trajectory
    branch: Branch
    images: Sequence[ImageInput] = ()
    """Images of the branch, with the inputs of the vision model."""


class Attempt(NamedTuple):
    """Branches of one trajectory with the data of its T trained tokens, concatenated."""

    trajectory: Trajectory
    branches: list[Branch]
    k1_T: list[float]
    """k1 estimate of the KL to the reference model per token; empty if not needed."""
    values_T: list[float]

    @property
    def advantage(self) -> float:
        return self.trajectory.advantage or 0.0

    @property
    def turn_rewards(self) -> list[float]:
        """Reward of each turn (answer), branch after branch; empty if the agent returned none."""
        return [reward for branch in self.branches for reward in branch.rewards]


def rows(groups: list[list[Trajectory]], algorithm: Algorithm) -> list[Row]:
    """Return one row per trained branch (token sequence) of each trajectory that
    `can_be_trained`, in the order of the groups."""
    return [
        Row(number, trajectory, branch)
        for number, group in enumerate(groups)
        for trajectory in group
        if can_be_trained(trajectory, algorithm)
        for branch in trajectory.trained_branches
    ]


def can_be_trained(trajectory: Trajectory, algorithm: Algorithm) -> bool:
    """Whether a trajectory is scored and not masked as truncated; its advantage may be 0."""
    masked = algorithm.mask_truncated and trajectory.truncated
    return trajectory.reward is not None and not masked


def required_scores(rows: list[Row], train: TrainConfig) -> ScoreBatch | None:
    """Return the request for reference log-probs or values that the algorithm needs to compute
    advantages; None if it needs neither."""
    algorithm = train.algorithm
    values = isinstance(algorithm.credit, ValueCredit)
    if not (rows and (algorithm.shaped or values)):
        return None
    return ScoreBatch(
        items=[
            TrainItem(
                tokens=row.branch.tokens,
                images=list(row.images),
                spans=row.branch.spans,
                grammars=row.branch.grammars,
            )
            for row in rows
        ],
        temperature=train.temperature,
        reference=algorithm.shaped,
        values=values,
    )


def train_items(
    rows: list[Row], algorithm: Algorithm, scores: Sequence[Scores] = ()
) -> list[TrainItem | None]:
    """Return one training item per row; None for a row without any gradient. `scores` answer the
    request of `required_scores`, one per row, or are empty if there is none."""
    given_BT = _cut(_credited(rows, algorithm, scores), rows)
    weights_B = _weights(rows, algorithm)
    advantages_BT = _scaled(given_BT, weights_B, scores, algorithm)
    items: list[TrainItem | None] = []
    for number, row in enumerate(rows):
        item = TrainItem(
            tokens=row.branch.tokens,
            images=list(row.images),
            spans=row.branch.spans,
            logprobs=row.branch.logprobs,
            advantages=advantages_BT[number],
            weight=weights_B[number],
            grammars=row.branch.grammars,
        )
        if scores:
            item = _with_scores(item, scores[number], given_BT[number], algorithm)
        items.append(item if item.returns or any(item.advantages) else None)
    return items


def split_into_batches(
    groups: list[list[Trajectory]],
    rows: list[Row],
    items: list[TrainItem | None],
    train: TrainConfig,
) -> list[TrainBatch]:
    """Return one batch per update of a step, from its rows and their items. Groups are dealt in
    turn, those with signal first, and each batch has its own normaliser. Fewer groups with signal
    than updates give fewer batches."""
    updates = train.algorithm.updates
    kept = [(row.group, item) for row, item in zip(rows, items, strict=True) if item]
    teaching = {group for group, _ in kept}
    order = sorted(range(len(groups)), key=lambda group: group not in teaching)
    batches = []
    for first in range(min(updates, len(teaching))):
        dealt = set(order[first::updates])
        batches.append(
            TrainBatch(
                items=[item for group, item in kept if group in dealt],
                algorithm=train.algorithm,
                temperature=train.temperature,
                normaliser=normaliser([groups[group] for group in sorted(dealt)], train),
            )
        )
    return batches


def normaliser(groups: list[list[Trajectory]], train: TrainConfig) -> int:
    """Divisor of the summed losses, by `algorithm.average` (tokens, trajectories, sequences or
    constant): number of trainable tokens, trajectories or sequences, or of sequences ×
    max_tokens."""
    algorithm = train.algorithm
    taught = [t.trained_branches for group in groups for t in group if can_be_trained(t, algorithm)]
    branches = [branch for of_trajectory in taught for branch in of_trajectory]
    if algorithm.average == "tokens":
        return sum(branch.sampled for branch in branches)
    if algorithm.average == "trajectories":
        return sum(1 for of_trajectory in taught if of_trajectory)
    return len(branches) * (train.max_tokens if algorithm.average == "constant" else 1)


def distance(scores: Sequence[Scores]) -> float:
    """Mean k1 estimate of the KL divergence to the reference model over all tokens."""
    k1 = [gap for entry in scores for gap in credit.divergence(entry.logprobs, entry.reference)]
    return sum(k1) / len(k1)


def trained_tokens(item: TrainItem) -> int:
    return sum(end - start for start, end in item.spans)


def anchors(branches: list[Branch]) -> list[tuple[int, ...]]:
    """Return the observation before each turn: the tokens between the last answer and this one, or
    the whole prompt at the start of a branch."""
    found = []
    for branch in branches:
        before = 0
        for start, end in branch.turns:
            found.append(tuple(branch.tokens[before:start]))
            before = end
    return found


def _with_scores(
    item: TrainItem, scores: Scores, given_T: list[float], algorithm: Algorithm
) -> TrainItem:
    """Add what the update compares with: old log-probs, and values with returns A + V."""
    known: dict[str, list[float]] = {}
    if algorithm.moving:
        known["old_logprobs"] = scores.logprobs
    if scores.values:
        known["values"] = scores.values
        known["returns"] = [a + v for a, v in zip(given_T, scores.values, strict=True)]
    return item.model_copy(update=known)


def _scaled(
    given_BT: list[list[float]],
    weights_B: list[float],
    scores: Sequence[Scores],
    algorithm: Algorithm,
) -> list[list[float]]:
    """Apply the batch-wide scaling of advantages."""
    if algorithm.batch_scale == "whiten":
        given_BT = credit.whitened(given_BT)
    elif algorithm.batch_scale == "mean_abs":
        given_BT = credit.to_mean_size_1(given_BT, weights_B)
    return _leaned(given_BT, scores, algorithm.kl) if algorithm.kl_in == "advantage" else given_BT


def _credited(rows: list[Row], algorithm: Algorithm, scores: Sequence[Scores]) -> list[list[float]]:
    """Return the advantages of each trajectory's trained tokens by the setting `credit`."""
    kind, charge = algorithm.credit, algorithm.kl if algorithm.kl_in == "reward" else 0.0
    found: list[list[float]] = []
    for attempts in _by_group(rows, scores):
        if isinstance(kind, ValueCredit):
            found += [_valued(attempt, kind, charge) for attempt in attempts]
            continue
        given = (
            _turn_by_turn(attempts, algorithm, kind)
            if isinstance(kind, AnchorCredit)
            else [[a.advantage] * sum(branch.sampled for branch in a.branches) for a in attempts]
        )
        if charge:
            given = [
                credit.kl_in_reward(advantages_T, attempt.k1_T, charge)
                for advantages_T, attempt in zip(given, attempts, strict=True)
            ]
        found += given
    return found


def _valued(attempt: Attempt, kind: ValueCredit, charge: float) -> list[float]:
    sizes_K = [size for branch in attempt.branches for size in branch.turn_sizes]
    rewards_K = credit.by_turn(attempt.advantage, attempt.turn_rewards, len(sizes_K))
    rewards_T = [
        reward
        for at_end, length in zip(rewards_K, sizes_K, strict=True)
        for reward in credit.terminal_rewards(at_end, length)
    ]
    if charge:
        rewards_T = [r - charge * k1 for r, k1 in zip(rewards_T, attempt.k1_T, strict=True)]
    return credit.gae(rewards_T, attempt.values_T, kind.discount, kind.decay)


def _turn_by_turn(
    attempts: list[Attempt], algorithm: Algorithm, kind: AnchorCredit
) -> list[list[float]]:
    turns_G = [[size for b in a.branches for size in b.turn_sizes] for a in attempts]
    returns_GK = [
        credit.turn_returns(
            credit.by_turn(a.trajectory.reward or 0.0, a.turn_rewards, len(turns)), kind.discount
        )
        for a, turns in zip(attempts, turns_G, strict=True)
    ]
    anchors_GK = [anchors(attempt.branches) for attempt in attempts]
    turn_GK = credit.turn_advantages(algorithm.advantage, anchors_GK, returns_GK)
    return [
        [
            a.advantage + kind.weight * of_turn
            for of_turn, n in zip(of_K, turns, strict=True)
            for _ in range(n)
        ]
        for a, of_K, turns in zip(attempts, turn_GK, turns_G, strict=True)
    ]


def _leaned(
    advantages_BT: list[list[float]], scores: Sequence[Scores], weight: float
) -> list[list[float]]:
    """Add `weight` times the centred KL penalty of each token to the advantages of rows that have a
    non-zero one; other rows stay unchanged."""
    teaching = [number for number, advantages_T in enumerate(advantages_BT) if any(advantages_T)]
    k1_BT = [credit.divergence(scores[n].logprobs, scores[n].reference) for n in teaching]
    leaned = credit.kl_centred([advantages_BT[n] for n in teaching], k1_BT, weight)
    changed = dict(zip(teaching, leaned, strict=True))
    return [changed.get(n, advantages_T) for n, advantages_T in enumerate(advantages_BT)]


def _by_group(rows: list[Row], scores: Sequence[Scores]) -> list[list[Attempt]]:
    scores = scores or [Scores(logprobs=[])] * len(rows)
    pairs = list(zip(rows, scores, strict=True))
    return [
        [_attempt(list(own)) for _, own in groupby(group, lambda pair: pair[0].trajectory.id)]
        for _, group in groupby(pairs, lambda pair: pair[0].group)
    ]


def _attempt(pairs: list[tuple[Row, Scores]]) -> Attempt:
    return Attempt(
        trajectory=pairs[0][0].trajectory,
        branches=[row.branch for row, _ in pairs],
        k1_T=[
            k1
            for _, scores in pairs
            if scores.reference
            for k1 in credit.divergence(scores.logprobs, scores.reference)
        ],
        values_T=[value for _, scores in pairs for value in scores.values],
    )


def _cut(joined_BT: list[list[float]], rows: list[Row]) -> list[list[float]]:
    """Split values per trajectory, whose branches are concatenated, into values per row."""
    flat = [value for joined_T in joined_BT for value in joined_T]
    cut, start = [], 0
    for row in rows:
        cut.append(flat[start : start + row.branch.sampled])
        start += row.branch.sampled
    return cut


def _weights(rows: list[Row], algorithm: Algorithm) -> list[float]:
    """Weight of a trained token of each row before division by the normaliser."""
    if algorithm.average == "sequences":
        return [1 / row.branch.sampled for row in rows]
    if algorithm.average == "trajectories":
        return [1 / sum(b.sampled for b in row.trajectory.trained_branches) for row in rows]
    return [1.0] * len(rows)
