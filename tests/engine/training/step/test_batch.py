"""Training batches: masks, weights, credit, one batch per update."""

import math
from typing import Any

import pytest

from engine.policy.base import ImageInput, Scores, TrainItem
from engine.protocol.config.algorithm import Algorithm, AnchorCredit
from engine.protocol.config.project import TrainConfig
from engine.protocol.records.conversations import AgentConversation, Branch
from engine.protocol.records.runs import Trajectory
from engine.training.step.batch import (
    anchors,
    normaliser,
    required_scores,
    rows,
    split_into_batches,
    train_items,
)

Spans = list[tuple[int, int]]


def branch(spans: Spans, tokens: list[int] | None = None) -> Branch:
    tokens = tokens or list(range(spans[-1][1] if spans else 3))
    count = sum(end - start for start, end in spans)
    return Branch(tokens=tokens, spans=spans, logprobs=[-1.0] * count)


def trajectory(
    index: int, reward: float | None, advantage: float | None, *branches: Branch, **more: Any
) -> Trajectory:
    group = more.pop("group", 0)
    return Trajectory(
        id=f"t-{group}-{index}",
        split="train",
        step=1,
        group=group,
        index=index,
        scenario_id="s",
        title="",
        reward=reward,
        advantage=advantage,
        branches=list(branches),
        sampled_tokens=sum(b.sampled for b in branches),
        **more,
    )


GROUP = [
    trajectory(0, 1.0, 0.5, branch([(2, 4)])),
    trajectory(1, 0.0, -0.5, branch([(2, 6)]), truncated=True),
    trajectory(2, 0.5, 0.0, branch([(2, 3)])),
    trajectory(3, None, None, branch([(2, 9)])),
    trajectory(4, 0.5, 0.0, branch([])),
]


def items(algorithm: Algorithm, scores: list[Scores] | None = None) -> list[TrainItem | None]:
    return train_items(rows([GROUP], algorithm), algorithm, scores or [])


def test_every_token_gets_the_advantage_of_its_trajectory() -> None:
    """Unscored and empty trajectories give no rows; advantage 0 gives no training item."""
    items_ = items(Algorithm())
    assert [item and item.advantages for item in items_] == [[0.5] * 2, [-0.5] * 4, None]
    assert all(item.weight == 1 and not item.returns for item in items_ if item)


def test_answer_with_closed_reasoning_is_one_turn() -> None:
    """The two spans of an answer share a turn reward and an anchor; forced tokens are not
    trained."""
    closed = Branch(
        tokens=list(range(14)),
        spans=[(2, 4), (6, 8), (9, 12)],
        forced=[(4, 6)],
        logprobs=[-1.0] * 7,
        rewards=[1.0, 0.0],
    )
    assert closed.turns == [(2, 8), (9, 12)]
    assert closed.turn_sizes == [4, 3]
    assert anchors([closed]) == [(0, 1), (8,)]
    group = [trajectory(0, 1.0, 0.5, closed), trajectory(1, 0.0, -0.5, branch([(2, 4)]))]
    algorithm = Algorithm(credit=AnchorCredit())
    (first, _) = train_items(rows([group], algorithm), algorithm, [])
    assert first is not None
    assert first.spans == closed.spans
    assert len(first.advantages) == 7
    assert len(set(first.advantages[:4])) == 1


def test_truncated_trajectories_can_be_masked() -> None:
    algorithm = Algorithm(mask_truncated=True)
    assert [item and item.advantages for item in items(algorithm)] == [[0.5] * 2, None]
    assert normaliser([GROUP], TrainConfig(algorithm=algorithm)) == 3


@pytest.mark.parametrize(
    ("average", "weights", "total"),
    [
        ("tokens", [1.0, 1.0], 7),
        ("sequences", [0.5, 0.25], 3),
        ("trajectories", [0.5, 0.25], 3),
        ("constant", [1.0, 1.0], 30),
    ],
)
def test_averages_set_item_weights_and_normaliser(
    average: Any, weights: list[float], total: int
) -> None:
    algorithm = Algorithm(average=average)
    assert [item.weight for item in items(algorithm) if item] == weights
    assert normaliser([GROUP], TrainConfig(algorithm=algorithm, max_tokens=10)) == total


def test_branches_of_one_trajectory_share_its_weight() -> None:
    two_branches = trajectory(0, 1.0, 1.0, branch([(1, 4)]), branch([(2, 3)]))
    by = {
        average: [i.weight for i in train_items(rows([[two_branches]], a), a) if i]
        for average in ("sequences", "trajectories")
        for a in [Algorithm(average=average)]
    }
    assert by == {"sequences": [1 / 3, 1.0], "trajectories": [0.25, 0.25]}


def test_gae_spans_observations_and_branches() -> None:
    """Tokens 2, 5 and 6 of one branch and 1 of the next form one episode of four."""
    two_branches = trajectory(0, 1.0, 1.0, branch([(2, 3), (5, 7)]), branch([(1, 2)]))
    algorithm = Algorithm(preset="ppo", batch_scale="none", updates=1)
    algorithm = algorithm.model_copy(
        update={"credit": algorithm.credit.model_copy(update={"decay": 0.5})}
    )
    items_ = rows([[two_branches]], algorithm)
    scores = [
        Scores(logprobs=[-1.0] * 3, values=[0.5, 0.4, 0.9]),
        Scores(logprobs=[-1.0], values=[0.2]),
    ]
    first, second = train_items(items_, algorithm, scores)
    assert first
    assert second
    last = 1 - 0.2
    third = (0.2 - 0.9) + 0.5 * last
    expected = [-0.1 + 0.5 * (0.5 + 0.5 * third), 0.5 + 0.5 * third, third]
    assert first.advantages == pytest.approx(expected)
    assert second.advantages == pytest.approx([last])
    assert second.returns == pytest.approx([1.0])
    assert first.values == [0.5, 0.4, 0.9]
    score_batch = required_scores(items_, TrainConfig(algorithm=algorithm))
    assert score_batch is not None
    assert score_batch.values
    assert not score_batch.reference


def test_groups_without_signal_still_train_the_value_head() -> None:
    tied_group = [trajectory(n, 0.0, 0.0, branch([(1, 3)])) for n in range(2)]
    algorithm = Algorithm(preset="ppo", updates=1)
    scores = [Scores(logprobs=[-1.0] * 2, values=[0.5, 0.1])] * 2
    items_ = train_items(rows([tied_group], algorithm), algorithm, scores)
    assert all(item and item.returns for item in items_)


def test_anchors_are_the_observed_tokens_before_each_turn() -> None:
    tokens = [9, 8, 1, 1, 5, 2, 5, 3]
    assert anchors([branch([(2, 4), (5, 6), (7, 8)], tokens)]) == [(9, 8), (5,), (5,)]
    assert anchors([branch([(2, 4)], tokens), branch([(3, 4)], tokens)]) == [(9, 8), (9, 8, 1)]


def test_gigpo_adds_the_turn_advantage() -> None:
    """Both start alike and see 5 in their second turn; one of three turns is rewarded."""
    one = trajectory(0, 1.0, 0.5, branch([(1, 2), (3, 5)], [9, 1, 5, 2, 2]))
    two = trajectory(1, 0.0, -0.5, branch([(1, 2), (3, 4)], [9, 4, 5, 3]))
    algorithm = Algorithm(
        credit={"kind": "anchors", "weight": 2.0, "discount": 0.5}  # type: ignore[arg-type]
    )
    first, second = train_items(rows([[one, two]], algorithm), algorithm)
    assert first
    assert second
    assert first.advantages == pytest.approx([0.5 + 2 * 0.25, 0.5 + 2 * 0.5, 0.5 + 2 * 0.5])
    assert second.advantages == pytest.approx([-0.5 - 2 * 0.25, -0.5 - 2 * 0.5])


def with_rewards(one: Branch, *rewards: float) -> Branch:
    return one.model_copy(update={"rewards": list(rewards)})


def test_gigpo_credits_the_rewarded_turn() -> None:
    """The first turn earns 0.75 of the reward of 1: the returns are 0.75 + 0.5 · 0.25 and 0.25
    against 0, from the same states."""
    first = with_rewards(branch([(1, 2), (3, 5)], [9, 1, 5, 2, 2]), 0.75, 0.0)
    one = trajectory(0, 1.0, 0.5, first)
    two = trajectory(1, 0.0, -0.5, branch([(1, 2), (3, 4)], [9, 4, 5, 3]))
    algorithm = Algorithm(
        credit={"kind": "anchors", "weight": 2.0, "discount": 0.5}  # type: ignore[arg-type]
    )
    rewarded_item, unrewarded_item = train_items(rows([[one, two]], algorithm), algorithm)
    assert rewarded_item
    assert unrewarded_item
    first_turn, end = 0.875 / 2, 0.25 / 2
    assert rewarded_item.advantages == pytest.approx([0.5 + 2 * first_turn, *[0.5 + 2 * end] * 2])
    assert unrewarded_item.advantages == pytest.approx([-0.5 - 2 * first_turn, -0.5 - 2 * end])


def test_value_head_uses_turn_rewards_at_turn_ends() -> None:
    """γ = λ = 1: A = remaining return − V, here over two branches."""
    one = trajectory(
        0,
        1.0,
        1.0,
        with_rewards(branch([(1, 3), (4, 5)]), 0.25, 0.5),
        with_rewards(branch([(2, 4)]), -0.5),
    )
    algorithm = Algorithm(
        advantage={"kind": "reward"},  # type: ignore[arg-type]
        credit={"kind": "value", "decay": 1.0},  # type: ignore[arg-type]
    )
    values = [[0.1, 0.2, 0.3], [0.4, 0.5]]
    scores = [Scores(logprobs=[-1.0] * len(v), values=v) for v in values]
    first, second = train_items(rows([[one]], algorithm), algorithm, scores)
    assert first
    assert second
    assert first.advantages == pytest.approx([0.9, 0.8, 0.75 - 0.3])
    assert second.advantages == pytest.approx([0.25 - 0.4, 0.25 - 0.5])


def test_kl_in_advantage_covers_only_trained_tokens() -> None:
    algorithm = Algorithm(kl=0.1, kl_in="advantage")
    scores = [
        Scores(logprobs=[-1.0] * 2, reference=[-1.0, -1.6]),
        Scores(logprobs=[-1.0] * 4, reference=[-1.0, -1.0, -1.0, math.nan]),
        Scores(logprobs=[-1.0], reference=[-9.0]),
    ]
    first, second, third = items(algorithm, scores)
    assert first
    assert second
    assert third is None
    assert first.advantages == pytest.approx([0.51, 0.45])
    assert second.advantages == pytest.approx([-0.49] * 4)


def test_kl_in_reward_is_accumulated_to_earlier_tokens() -> None:
    algorithm = Algorithm(kl=0.1, kl_in="reward")
    no_divergence = Scores(logprobs=[-1.0], reference=[-1.0])
    scores = [
        Scores(logprobs=[-1.0] * 2, reference=[-1.0, -2.0]),
        Scores(logprobs=[-1.0] * 4, reference=[-1.0] * 4),
        no_divergence,
    ]
    first, second, third = items(algorithm, scores)
    assert first
    assert second
    assert third is None
    assert first.advantages == pytest.approx([0.4, 0.4])
    assert second.advantages == [-0.5] * 4


def test_art_preset_is_invariant_to_reward_scale() -> None:
    algorithm = Algorithm(preset="art")
    items_ = [item for item in items(algorithm) if item]
    assert [item.advantages[0] for item in items_] == pytest.approx([1.5, -1.5])
    assert [item.weight for item in items_] == [0.5, 0.25]


def test_default_algorithm_requires_no_scores() -> None:
    items_ = rows([GROUP], Algorithm())
    assert required_scores(items_, TrainConfig()) is None
    assert required_scores([], TrainConfig(algorithm=Algorithm(preset="ppo"))) is None


def make_group(number: int, advantage: float) -> list[Trajectory]:
    return [
        trajectory(0, 1.0, advantage, branch([(1, 2 + number)]), group=number),
        trajectory(1, 0.0, -advantage, branch([(1, 2)]), group=number),
    ]


def test_single_update_takes_all_groups_in_order() -> None:
    groups = [make_group(0, 0.5), make_group(1, 0.0), make_group(2, 0.5)]
    train = TrainConfig()
    items_ = rows(groups, train.algorithm)
    (batch,) = split_into_batches(groups, items_, train_items(items_, train.algorithm), train)
    assert [len(item.advantages) for item in batch.items] == [1, 1, 3, 1]
    assert batch.normaliser == normaliser(groups, train) == 9


def test_updates_split_the_groups_and_normalise_separately() -> None:
    groups = [make_group(0, 0.0), make_group(1, 0.5), make_group(2, 0.5), make_group(3, 0.5)]
    train = TrainConfig(algorithm=Algorithm(updates=2))
    items_ = rows(groups, train.algorithm)
    first, second = split_into_batches(groups, items_, train_items(items_, train.algorithm), train)
    assert [len(item.advantages) for item in first.items] == [2, 1, 4, 1]
    assert first.normaliser == 8
    assert [len(item.advantages) for item in second.items] == [3, 1]
    assert second.normaliser == 6
    groups_ = [make_group(0, 0.0), make_group(1, 0.5)]
    items_ = rows(groups_, train.algorithm)
    (only,) = split_into_batches(groups_, items_, train_items(items_, train.algorithm), train)
    assert only.normaliser == 3


def test_stored_grammars_reach_scores_and_updates() -> None:
    """Items of a trajectory that was written to JSON and read again have the grammars of its
    spans."""
    grammar = '{"type": "structural_tag", "format": {"type": "any_text"}}'
    spans: Spans = [(2, 4), (6, 8)]
    constrained = branch(spans).model_copy(update={"grammars": [(1, grammar)]})
    stored = trajectory(0, 1.0, 0.5, constrained).model_dump_json()
    group = [Trajectory.model_validate_json(stored), trajectory(1, 0.0, -0.5, branch([(2, 4)]))]
    algorithm = Algorithm(preset="ppo", updates=1)
    found = rows([group], algorithm)
    request = required_scores(found, TrainConfig(algorithm=algorithm))
    assert request is not None
    assert [item.grammars for item in request.items] == [[(1, grammar)], []]
    scores = [Scores(logprobs=[-1.0] * n, values=[0.0] * n) for n in (4, 2)]
    items_ = train_items(found, algorithm, scores)
    assert [item.grammars for item in items_ if item] == [[(1, grammar)], []]


def test_images_of_a_row_are_in_its_items() -> None:
    image = ImageInput(start=1, count=2, id="a" * 64, file="a.safetensors")
    algorithm = Algorithm(preset="ppo", updates=1)
    found = [row._replace(images=[image]) for row in rows([GROUP[:1]], algorithm)]
    request = required_scores(found, TrainConfig(algorithm=algorithm))
    assert request is not None
    assert [item.images for item in request.items] == [[image]]
    (item,) = train_items(found, Algorithm())
    assert item is not None
    assert item.images == [image]


@pytest.mark.parametrize(("average", "divisor"), [("tokens", 2), ("trajectories", 1)])
def test_ignored_conversations_are_not_trained(average: Any, divisor: int) -> None:
    side = branch([(2, 7)]).model_copy(update={"conversation": 1})
    known = [
        AgentConversation(name="main", answers=1),
        AgentConversation(name="title", answers=1, trained=False),
    ]
    group = [trajectory(0, 1.0, 0.5, branch([(2, 4)]), side, conversations=known)]
    algorithm = Algorithm(average=average)
    (row,) = rows([group], algorithm)
    assert row.branch.conversation == 0
    assert normaliser([group], TrainConfig(algorithm=algorithm)) == divisor
    (item,) = train_items([row], algorithm)
    assert item
    assert item.weight == (0.5 if average == "trajectories" else 1.0)
    only_side = [known[0].model_copy(update={"trained": False}), known[1]]
    untrained = trajectory(0, 1.0, 0.5, branch([(2, 4)]), side, conversations=only_side)
    assert rows([[untrained]], algorithm) == []
    assert normaliser([[untrained]], TrainConfig(algorithm=algorithm)) == 0
