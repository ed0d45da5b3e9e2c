"""Labels: what they make of a group's rewards."""

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

NOBODY = JudgeToPerson([])
LENIENT = JudgeToPerson([(x / 10, min(1.0, x / 10 + 0.2)) for x in range(LEAST_PAIRS)])
JUDGED = ProjectConfig(judge=JudgeConfig(enabled=True, models=("openai/a",)))
RULES = ProjectConfig()
PLAIN = Algorithm(advantage=PlainReward(), batch_scale="whiten")


def word(kind: str, index: int | None = None, **fields: Any) -> Word:
    who = None if index is None else f"t0-{index}"
    return Word.model_validate({"kind": kind, "trajectory_id": who, **fields})


def label(*words: Word, **fields: Any) -> Label:
    return Label(id="x", step=1, group=0, words=words, **fields)


def judged(*scores: float | None, rules: float | None = None) -> list[Trajectory]:
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


def ruled(*rewards: float) -> list[Trajectory]:
    return [
        one.model_copy(update={"awaits_judge": False, "reward": reward, "parts": {"rules": reward}})
        for one, reward in zip(group(*map(str, rewards)), rewards, strict=True)
    ]


def rewards(attempts: list[Trajectory]) -> list[float | None]:
    return [one.reward for one in attempts]


def test_a_score_replaces_the_judges_and_siblings_are_mapped() -> None:
    said = label(word("score", 0, value=0.9))
    found = apply_labels(JUDGED, judged(0.1, 0.5, None), [said], LENIENT)
    assert rewards(found) == [0.9, pytest.approx(0.7), None]
    assert [one.parts for one in found[:2]] == [{PART: 0.9}, {RULER: pytest.approx(0.7)}]
    assert found[0].labels == ("score",)
    assert found[1].labels == ()


def test_only_the_judges_part_is_overruled() -> None:
    config = ProjectConfig(
        judge=JUDGED.judge, reward=RewardConfig(weights={RULER: 2.0}, required=(RULER, "rules"))
    )
    said = label(word("score", 0, value=0.9))
    found = apply_labels(config, judged(0.1, 0.5, rules=0.25), [said], NOBODY)
    assert found[0].parts == {"rules": 0.25, PART: 0.9}
    assert found[0].reward == pytest.approx(0.25 + 2 * 0.9)


def test_without_a_judge_the_word_stands_for_the_reward() -> None:
    config = ProjectConfig(reward=RewardConfig(required=("rules",)))
    said = label(word("score", 1, value=0.2))
    found = apply_labels(config, ruled(3.0, 5.0), [said], NOBODY)
    assert rewards(found) == [3.0, 0.2]
    assert found[1].parts == {PART: 0.2}


def test_nobody_else_has_scored_it() -> None:
    """A run without judge and rules: the person's word is all there is."""
    nothing = Problem(code="reward.none", message="?")
    bare = [
        one.model_copy(update={"reward": None, "parts": {}, "problem": nothing})
        for one in ruled(0, 0, 0)
    ]
    said = label(word("order", order=(("t0-2",), ("t0-0",))))
    found = apply_labels(RULES, bare, [said], NOBODY)
    assert found[2].reward is not None
    assert found[0].reward is not None
    assert found[2].reward > found[0].reward
    assert found[1].problem == nothing


def test_a_constraint_still_holds_against_a_person() -> None:
    constraint = Constraint(part="rules", below=0.5, effect="penalty", value=0.3)
    config = ProjectConfig(reward=RewardConfig(constraints=(constraint,)))
    said = label(word("score", 0, value=1.0))
    assert apply_labels(config, ruled(0.2, 0.9), [said], NOBODY)[0].reward == pytest.approx(0.7)


def test_a_later_score_counts() -> None:
    labels = [label(word("score", 0, value=0.2)), label(word("score", 0, value=0.8))]
    assert apply_labels(JUDGED, judged(0.5, 0.6), labels, NOBODY)[0].reward == 0.8


def test_the_best_is_above_and_says_so_where_it_moved() -> None:
    found = apply_labels(JUDGED, judged(0.5, 0.9, 0.2), [label(word("best", 0))], NOBODY)
    assert rewards(found) == [pytest.approx(0.725), pytest.approx(0.675), 0.2]
    assert [PART in one.parts for one in found] == [True, True, False]
    assert found[0].labels == ("best",)


def test_the_worst_is_below_and_says_so_where_it_moved() -> None:
    found = apply_labels(JUDGED, judged(0.5, 0.1, 0.8), [label(word("worst", 0))], NOBODY)
    assert rewards(found) == [pytest.approx(0.275), pytest.approx(0.325), 0.8]
    assert [PART in one.parts for one in found] == [True, True, False]
    assert found[0].labels == ("worst",)


@pytest.mark.parametrize(
    "said",
    [word("best", 0), word("worst", 1), word("order", order=(("t0-0",), ("t0-1",)))],
    ids=lambda said: said.kind,
)
def test_rules_that_pay_more_than_1_widen_the_gap(said: Word) -> None:
    """The span is [0, 3]: a twentieth of it is 0.15."""
    found = apply_labels(RULES, ruled(3.0, 3.0), [label(said)], NOBODY)
    assert rewards(found) == [3.0, pytest.approx(2.85)]


def test_the_judges_opinion_is_its_part_and_not_the_reward() -> None:
    """Judged 0.4 and 0.5; with the rules, worth 0.6 and 0.7."""
    said = label(word("order", order=(("t0-0",), ("t0-1",))))
    found = apply_labels(JUDGED, judged(0.4, 0.5, rules=0.2), [said], NOBODY)
    assert [one.parts[PART] for one in found] == [pytest.approx(0.475), pytest.approx(0.425)]
    assert rewards(found) == [pytest.approx(0.675), pytest.approx(0.625)]


def test_without_a_judge_nothing_is_mapped() -> None:
    found = apply_labels(RULES, ruled(0.1, 0.5), [label(word("score", 0, value=0.9))], LENIENT)
    assert rewards(found) == [0.9, 0.5]


def test_a_score_heals_what_the_judge_could_not_score() -> None:
    found = apply_labels(JUDGED, judged(None, 0.5), [label(word("score", 0, value=0.9))], NOBODY)
    assert (found[0].reward, found[0].problem) == (0.9, None)
    assert found[0].unlabelled == Unlabelled(
        reward=None, parts={}, problem=Problem(code="judge.no_score", message="?")
    )


def test_a_required_part_that_is_missing_leaves_it_unscored() -> None:
    config = ProjectConfig(judge=JUDGED.judge, reward=RewardConfig(required=("tests",)))
    found = apply_labels(config, judged(0.1, 0.5), [label(word("score", 0, value=0.9))], NOBODY)
    assert (found[0].reward, found[0].parts) == (None, {PART: 0.9})
    assert found[0].problem is not None
    assert found[0].problem.code.startswith("reward.")


def test_scores_are_taken_from_score_words_of_this_group_alone() -> None:
    scores = {"a": 0.1, "b": 0.5}
    foreign = Word(kind="score", trajectory_id="elsewhere", value=0.9)
    assert scores_with_labels(scores, [foreign], LENIENT) == LabelledScores(scores, set())
    flagged = Word(kind="flag", trajectory_id="a", value=0.9)
    assert scores_with_labels(scores, [flagged], LENIENT) == LabelledScores(scores, set())
    empty = Word(kind="score", trajectory_id="a")
    assert scores_with_labels(scores, [empty], LENIENT) == LabelledScores(scores, set())
    for kind in ("best", "worst"):
        foreign = Word.model_validate({"kind": kind, "trajectory_id": "elsewhere"})
        assert scores_with_labels(scores, [foreign], NOBODY).scores == scores


def test_a_score_is_a_persons_even_where_it_equals_the_judges() -> None:
    same = Word(kind="score", trajectory_id="a", value=0.1)
    found = scores_with_labels({"a": 0.1, "b": None}, [same], NOBODY)
    assert found == LabelledScores({"a": 0.1, "b": None}, {"a"})


def test_an_order_marks_whom_it_names_alone() -> None:
    said = label(word("order", order=(("t0-2",), ("t0-0",))), word("flag", 2))
    found = apply_labels(JUDGED, judged(0.5, 0.6, 0.7), [said], NOBODY)
    assert [one.labels for one in found] == [("order",), (), ("flag", "order")]


def test_a_veto_is_worth_nothing_or_the_least() -> None:
    said = label(word("veto", 1), word("best", 1))
    assert rewards(apply_labels(JUDGED, judged(0.5, 0.6), [said], NOBODY)) == [0.5, 0.0]
    said = label(word("veto", 1))
    found = apply_labels(RULES, ruled(-2.0, 1.0), [said], NOBODY)[1]
    assert (found.reward, found.parts, found.problem) == (-2.0, {PART: -2.0}, None)
    found = apply_labels(JUDGED, judged(None, None), [said], NOBODY)[1]
    assert (found.reward, found.parts, found.problem) == (0.0, {PART: 0.0}, None)


def test_who_is_left_out_is_unscored_and_leaves_the_statistics() -> None:
    said = label(word("exclude", 1))
    before = judged(0.2, 0.9, 0.4)
    after = apply_labels(JUDGED, before, [said], NOBODY)
    assert after[1].problem is not None
    assert after[1].problem.code == "label.excluded"
    found = outcomes(JUDGED, before, after)
    assert [(one.trajectory_id, one.index) for one in found] == [
        ("t0-0", 0), ("t0-1", 1), ("t0-2", 2)
    ]  # fmt: skip
    assert [(one.reward, one.new_reward) for one in found] == [(0.2, 0.2), (0.9, None), (0.4, 0.4)]
    assert [one.advantage for one in found] == pytest.approx([-0.3, 0.4, -0.1])
    assert found[1].new_advantage is None
    assert [found[0].new_advantage, found[2].new_advantage] == pytest.approx([-0.1, 0.1])


def test_outcomes_use_the_advantage_of_the_project() -> None:
    config = JUDGED.model_copy(update={"train": TrainConfig(algorithm=PLAIN)})
    before = judged(0.25, 0.75)
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
def test_only_what_ended_well_may_be_scored(
    problem: str | None, now: str | None, scored: bool
) -> None:
    """`now` is the problem after labels."""

    def named(code: str | None) -> Problem | None:
        return None if code is None else Problem(code=code, message="?")

    before = Unlabelled(reward=None, parts={}, problem=named(problem)) if now else None
    one = judged(0.5)[0].model_copy(update={"problem": named(now or problem), "unlabelled": before})
    assert may_be_scored(one) is scored


def test_what_is_only_measured_changes_nothing_but_the_mark() -> None:
    before = judged(0.2, 0.9)
    said = label(word("best", 0), word("flag", 1), effect="none")
    after = apply_labels(JUDGED, before, [said], LENIENT)
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
def test_taking_it_all_back_brings_back_every_byte(scores, said, with_judge):  # type: ignore[no-untyped-def]
    config = JUDGED if with_judge else RULES
    before = judged(*scores)
    labels = [label(*(word(k, i, value=v) for k, i, v in one)) for one in said]
    after = apply_labels(config, before, labels, LENIENT)
    again = [without_labels(one).model_dump_json() for one in after]
    assert again == [one.model_dump_json() for one in before]
    assert apply_labels(config, after, [], LENIENT) == before
    assert apply_labels(config, after, labels, LENIENT) == after


def test_preferences_follow_the_latest_word() -> None:
    names = ["t0-0", "t0-1", "t0-2"]
    scores = [word("score", n, value=v) for n, v in enumerate((0.1, 0.9, 0.1))]
    assert set(preferences(scores, names)) == {("t0-1", "t0-0"), ("t0-1", "t0-2")}
    turned = [*scores, word("worst", 1)]
    assert set(preferences(turned, names)) == {("t0-0", "t0-1"), ("t0-2", "t0-1")}
    order = word("order", order=(("t0-0", "t0-2"), ("t0-1",)))
    assert set(preferences([order], names)) == {("t0-0", "t0-1"), ("t0-2", "t0-1")}
    assert preferences([word("veto", 0)], names) == []
