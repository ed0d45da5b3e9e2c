"""Effect of labels on the rewards of a group."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.config.algorithm import Algorithm, PlainReward
from engine.protocol.config.project import (
    Constraint,
    JudgeConfig,
    ProjectConfig,
    RewardConfig,
    TrainConfig,
)
from engine.protocol.problems import Problem
from engine.protocol.records.judging import PART as RULER
from engine.protocol.records.labels import PART, Label, Word, preferences
from engine.protocol.records.runs import Trajectory, Unlabelled
from engine.reward.labels import (
    LabelledScores,
    apply_labels,
    may_be_scored,
    outcomes,
    scores_with_labels,
    without_labels,
)
from engine.reward.order import LEAST_PAIRS, JudgeToPerson
from tests.engine.judge.conftest import group

NO_PAIRS = JudgeToPerson([])
LENIENT = JudgeToPerson([(x / 10, min(1.0, x / 10 + 0.2)) for x in range(LEAST_PAIRS)])
JUDGED = ProjectConfig(judge=JudgeConfig(enabled=True, models=("openai/a",)))
RULES = ProjectConfig()
PLAIN = Algorithm(advantage=PlainReward(), batch_scale="whiten")


def word(kind: str, index: int | None = None, **fields: Any) -> Word:
    who = None if index is None else f"t0-{index}"
    return Word.model_validate({"kind": kind, "trajectory_id": who, **fields})


def label(*words: Word, **fields: Any) -> Label:
    return Label(id="x", step=1, group=0, words=words, **fields)


def judged_group(*scores: float | None, rules: float | None = None) -> list[Trajectory]:
    own = {} if rules is None else {"rules": rules}
    return [
        one.model_copy(
            update={
                "awaits_judge": False,
                "reward": None if score is None else score + (rules or 0.0),
                "parts": own if score is None else {**own, RULER: score},
                "problem": Problem(code="judge.no_score", message="?") if score is None else None,
            }
        )
        for one, score in zip(group(*map(str, scores)), scores, strict=True)
    ]


def ruled_group(*rewards: float) -> list[Trajectory]:
    return [
        one.model_copy(update={"awaits_judge": False, "reward": reward, "parts": {"rules": reward}})
        for one, reward in zip(group(*map(str, rewards)), rewards, strict=True)
    ]


def rewards(trajectories: list[Trajectory]) -> list[float | None]:
    return [one.reward for one in trajectories]


def test_score_label_replaces_judge_score_and_maps_group() -> None:
    new_label = label(word("score", 0, value=0.9))
    result = apply_labels(JUDGED, judged_group(0.1, 0.5, None), [new_label], LENIENT)
    assert rewards(result) == [0.9, pytest.approx(0.7), None]
    assert [one.parts for one in result[:2]] == [{PART: 0.9}, {RULER: pytest.approx(0.7)}]
    assert result[0].labels == ("score",)
    assert result[1].labels == ()


def test_score_label_replaces_only_the_judge_part() -> None:
    config = ProjectConfig(
        judge=JUDGED.judge, reward=RewardConfig(weights={RULER: 2.0}, required=(RULER, "rules"))
    )
    new_label = label(word("score", 0, value=0.9))
    result = apply_labels(config, judged_group(0.1, 0.5, rules=0.25), [new_label], NO_PAIRS)
    assert result[0].parts == {"rules": 0.25, PART: 0.9}
    assert result[0].reward == pytest.approx(0.25 + 2 * 0.9)


def test_score_label_without_judge_becomes_the_reward() -> None:
    config = ProjectConfig(reward=RewardConfig(required=("rules",)))
    new_label = label(word("score", 1, value=0.2))
    result = apply_labels(config, ruled_group(3.0, 5.0), [new_label], NO_PAIRS)
    assert rewards(result) == [3.0, 0.2]
    assert result[1].parts == {PART: 0.2}


def test_order_label_rewards_otherwise_unscored_trajectories() -> None:
    """A run without judge and rules: the label is the only source of reward."""
    nothing = Problem(code="reward.none", message="?")
    unscored = [
        one.model_copy(update={"reward": None, "parts": {}, "problem": nothing})
        for one in ruled_group(0, 0, 0)
    ]
    new_label = label(word("order", order=(("t0-2",), ("t0-0",))))
    result = apply_labels(RULES, unscored, [new_label], NO_PAIRS)
    assert result[2].reward is not None
    assert result[0].reward is not None
    assert result[2].reward > result[0].reward
    assert result[1].problem == nothing


def test_constraint_still_applies_to_labelled_reward() -> None:
    constraint = Constraint(part="rules", below=0.5, effect="penalty", value=0.3)
    config = ProjectConfig(reward=RewardConfig(constraints=(constraint,)))
    new_label = label(word("score", 0, value=1.0))
    assert apply_labels(config, ruled_group(0.2, 0.9), [new_label], NO_PAIRS)[
        0
    ].reward == pytest.approx(0.7)


def test_later_score_label_wins() -> None:
    labels = [label(word("score", 0, value=0.2)), label(word("score", 0, value=0.8))]
    assert apply_labels(JUDGED, judged_group(0.5, 0.6), labels, NO_PAIRS)[0].reward == 0.8


def test_best_label_raises_trajectory_and_marks_moved_ones() -> None:
    result = apply_labels(JUDGED, judged_group(0.5, 0.9, 0.2), [label(word("best", 0))], NO_PAIRS)
    assert rewards(result) == [pytest.approx(0.725), pytest.approx(0.675), 0.2]
    assert [PART in one.parts for one in result] == [True, True, False]
    assert result[0].labels == ("best",)


def test_worst_label_lowers_trajectory_and_marks_moved_ones() -> None:
    result = apply_labels(JUDGED, judged_group(0.5, 0.1, 0.8), [label(word("worst", 0))], NO_PAIRS)
    assert rewards(result) == [pytest.approx(0.275), pytest.approx(0.325), 0.8]
    assert [PART in one.parts for one in result] == [True, True, False]
    assert result[0].labels == ("worst",)


@pytest.mark.parametrize(
    "new_label",
    [word("best", 0), word("worst", 1), word("order", order=(("t0-0",), ("t0-1",)))],
    ids=lambda new_label: new_label.kind,
)
def test_label_gap_scales_with_reward_span_above_1(new_label: Word) -> None:
    """The span is [0, 3]: the gap is a twentieth of it, 0.15."""
    result = apply_labels(RULES, ruled_group(3.0, 3.0), [label(new_label)], NO_PAIRS)
    assert rewards(result) == [3.0, pytest.approx(2.85)]


def test_order_label_moves_judge_part_instead_of_reward() -> None:
    """Judge scores 0.4 and 0.5; rewards with rules 0.6 and 0.7."""
    new_label = label(word("order", order=(("t0-0",), ("t0-1",))))
    result = apply_labels(JUDGED, judged_group(0.4, 0.5, rules=0.2), [new_label], NO_PAIRS)
    assert [one.parts[PART] for one in result] == [pytest.approx(0.475), pytest.approx(0.425)]
    assert rewards(result) == [pytest.approx(0.675), pytest.approx(0.625)]


def test_without_judge_other_rewards_are_not_mapped() -> None:
    result = apply_labels(
        RULES, ruled_group(0.1, 0.5), [label(word("score", 0, value=0.9))], LENIENT
    )
    assert rewards(result) == [0.9, 0.5]


def test_score_label_rewards_trajectory_unscored_by_judge() -> None:
    result = apply_labels(
        JUDGED, judged_group(None, 0.5), [label(word("score", 0, value=0.9))], NO_PAIRS
    )
    assert (result[0].reward, result[0].problem) == (0.9, None)
    assert result[0].unlabelled == Unlabelled(
        reward=None, parts={}, problem=Problem(code="judge.no_score", message="?")
    )


def test_missing_required_part_leaves_labelled_trajectory_unscored() -> None:
    config = ProjectConfig(judge=JUDGED.judge, reward=RewardConfig(required=("tests",)))
    result = apply_labels(
        config, judged_group(0.1, 0.5), [label(word("score", 0, value=0.9))], NO_PAIRS
    )
    assert (result[0].reward, result[0].parts) == (None, {PART: 0.9})
    assert result[0].problem is not None
    assert result[0].problem.code.startswith("reward.")


def test_scores_come_only_from_score_labels_of_this_group() -> None:
    scores = {"a": 0.1, "b": 0.5}
    foreign_word = Word(kind="score", trajectory_id="elsewhere", value=0.9)
    assert scores_with_labels(scores, [foreign_word], LENIENT) == LabelledScores(scores, set())
    flag_word = Word(kind="flag", trajectory_id="a", value=0.9)
    assert scores_with_labels(scores, [flag_word], LENIENT) == LabelledScores(scores, set())
    empty_word = Word(kind="score", trajectory_id="a")
    assert scores_with_labels(scores, [empty_word], LENIENT) == LabelledScores(scores, set())
    for kind in ("best", "worst"):
        foreign_word = Word.model_validate({"kind": kind, "trajectory_id": "elsewhere"})
        assert scores_with_labels(scores, [foreign_word], NO_PAIRS).scores == scores


def test_score_label_equal_to_judge_counts_as_human() -> None:
    same = Word(kind="score", trajectory_id="a", value=0.1)
    result = scores_with_labels({"a": 0.1, "b": None}, [same], NO_PAIRS)
    assert result == LabelledScores({"a": 0.1, "b": None}, {"a"})


def test_order_label_marks_only_the_ordered_trajectories() -> None:
    new_label = label(word("order", order=(("t0-2",), ("t0-0",))), word("flag", 2))
    result = apply_labels(JUDGED, judged_group(0.5, 0.6, 0.7), [new_label], NO_PAIRS)
    assert [one.labels for one in result] == [("order",), (), ("flag", "order")]


def test_veto_label_gives_zero_or_the_lowest_reward() -> None:
    new_label = label(word("veto", 1), word("best", 1))
    assert rewards(apply_labels(JUDGED, judged_group(0.5, 0.6), [new_label], NO_PAIRS)) == [
        0.5,
        0.0,
    ]
    new_label = label(word("veto", 1))
    result = apply_labels(RULES, ruled_group(-2.0, 1.0), [new_label], NO_PAIRS)[1]
    assert (result.reward, result.parts, result.problem) == (-2.0, {PART: -2.0}, None)
    result = apply_labels(JUDGED, judged_group(None, None), [new_label], NO_PAIRS)[1]
    assert (result.reward, result.parts, result.problem) == (0.0, {PART: 0.0}, None)


def test_excluded_trajectory_is_unscored_and_leaves_statistics() -> None:
    new_label = label(word("exclude", 1))
    before = judged_group(0.2, 0.9, 0.4)
    after = apply_labels(JUDGED, before, [new_label], NO_PAIRS)
    assert after[1].problem is not None
    assert after[1].problem.code == "label.excluded"
    result = outcomes(JUDGED, before, after)
    assert [(one.trajectory_id, one.index) for one in result] == [
        ("t0-0", 0), ("t0-1", 1), ("t0-2", 2)
    ]  # fmt: skip
    assert [(one.reward, one.new_reward) for one in result] == [(0.2, 0.2), (0.9, None), (0.4, 0.4)]
    assert [one.advantage for one in result] == pytest.approx([-0.3, 0.4, -0.1])
    assert result[1].new_advantage is None
    assert [result[0].new_advantage, result[2].new_advantage] == pytest.approx([-0.1, 0.1])


def test_outcomes_use_the_configured_advantage() -> None:
    config = JUDGED.model_copy(update={"train": TrainConfig(algorithm=PLAIN)})
    before = judged_group(0.25, 0.75)
    assert [one.advantage for one in outcomes(config, before, before)] == [0.25, 0.75]


@pytest.mark.parametrize(
    ("problem", "now", "scored"),
    [
        (None, None, True),
        ("judge.no_score", None, True),
        ("reward.none", None, True),
        ("label.excluded", None, True),
        ("judge.http.500", None, True),
        ("agent.timeout", None, False),
        ("judges.x", None, False),
        ("agent.timeout", "label.excluded", False),
        (None, "label.excluded", True),
    ],
)
def test_may_be_scored_depends_on_the_original_problem(
    problem: str | None, now: str | None, scored: bool
) -> None:
    """`now` is the problem code after labels."""

    def named(code: str | None) -> Problem | None:
        return None if code is None else Problem(code=code, message="?")

    before = Unlabelled(reward=None, parts={}, problem=named(problem)) if now else None
    one = judged_group(0.5)[0].model_copy(
        update={"problem": named(now or problem), "unlabelled": before}
    )
    assert may_be_scored(one) is scored


def test_label_without_effect_only_marks_trajectories() -> None:
    before = judged_group(0.2, 0.9)
    new_label = label(word("best", 0), word("flag", 1), effect="none")
    after = apply_labels(JUDGED, before, [new_label], LENIENT)
    assert rewards(after) == rewards(before)
    assert [one.labels for one in after] == [("best",), ("flag",)]
    assert all(one.unlabelled is None for one in after)


kinds = st.sampled_from(["score", "best", "worst", "veto", "exclude", "gold", "flag"])
words = st.tuples(kinds, st.integers(0, 3), st.floats(0, 1))


@given(
    st.lists(st.none() | st.floats(0, 1), min_size=4, max_size=4),
    st.lists(st.lists(words, min_size=1, max_size=4), max_size=4),
    st.booleans(),
)
def test_removing_all_labels_restores_the_trajectories(scores, new_label, with_judge):  # type: ignore[no-untyped-def]
    config = JUDGED if with_judge else RULES
    before = judged_group(*scores)
    labels = [label(*(word(k, i, value=v) for k, i, v in one)) for one in new_label]
    after = apply_labels(config, before, labels, LENIENT)
    restored = [without_labels(one).model_dump_json() for one in after]
    assert restored == [one.model_dump_json() for one in before]
    assert apply_labels(config, after, [], LENIENT) == before
    assert apply_labels(config, after, labels, LENIENT) == after


def test_preferences_follow_the_latest_label() -> None:
    names = ["t0-0", "t0-1", "t0-2"]
    scores = [word("score", n, value=v) for n, v in enumerate((0.1, 0.9, 0.1))]
    assert set(preferences(scores, names)) == {("t0-1", "t0-0"), ("t0-1", "t0-2")}
    changed = [*scores, word("worst", 1)]
    assert set(preferences(changed, names)) == {("t0-0", "t0-1"), ("t0-2", "t0-1")}
    order = word("order", order=(("t0-0", "t0-2"), ("t0-1",)))
    assert set(preferences([order], names)) == {("t0-0", "t0-1"), ("t0-2", "t0-1")}
    assert preferences([word("veto", 0)], names) == []
