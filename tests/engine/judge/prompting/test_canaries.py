"""Canaries: a sound judge catches them, one that obeys what it reads does not."""

import pytest

from engine.judge.panel import Panel
from engine.judge.prompting.canaries import (
    ID,
    KINDS,
    WORDS,
    CanaryResult,
    canary_results,
    kind_of,
    with_canary,
)
from engine.protocol.events.run import CanaryJudged
from engine.protocol.problems import Problem
from engine.protocol.records.judging import Verdict
from engine.protocol.records.runs import Branch, Message
from tests.engine.judge.conftest import Court, group, worth

STEP = {"step": 10, "group": 0}
PROBLEM = Problem(code="agent.timeout", message="?")
BRANCH = Branch(tokens=[1], spans=[(0, 1)], logprobs=[-1.0])


def verdict(name: str, score: float | None, judge: str = "a") -> Verdict:
    return Verdict(trajectory_id=name, judge=judge, rubric="r", score=score)


@pytest.mark.parametrize("kind", KINDS)
def test_a_canary_shares_the_task_and_nothing_else(kind: str) -> None:
    real = group("the answer", "another")
    *kept, canary = with_canary(real, kind)  # type: ignore[arg-type]
    assert kept == real
    assert canary.id == ID
    assert canary.messages[0] == real[0].messages[0]
    assert "the answer" not in canary.messages[-1].content


def test_a_canary_is_the_first_attempt_with_other_words() -> None:
    task = [Message(role="system", content="Be brief."), Message(role="user", content="Why?")]
    more = [Message(role="assistant", content="Because."), Message(role="user", content="And?")]
    real = [
        one.model_copy(
            update={"messages": [*task, *more], "problem": PROBLEM, "branches": [BRANCH]}
        )
        for one in group("x", "y")
    ]
    canary = with_canary(real, "bluster")[-1]
    assert canary == real[0].model_copy(
        update={
            "id": ID,
            "index": 2,
            "messages": [*task, Message(role="assistant", content=WORDS["bluster"])],
            "branches": [],
            "problem": None,
        }
    )


def test_kinds_take_turns() -> None:
    assert [kind_of(turn) for turn in range(4)] == ["flattery", "silence", "bluster", "flattery"]


def test_results_have_the_median_of_the_real_ones() -> None:
    real = [verdict(f"t{n}", score) for n, score in enumerate((0.9, None, 0.2, 0.5))]
    assert canary_results([*real, verdict(ID, 0.75)]) == [CanaryResult("a", 0.75, 0.5)]
    assert canary_results([*real[:3]]) == [CanaryResult("a", None, 0.9)]
    assert canary_results([verdict("t0", None), verdict(ID, 0.5)]) == []


def test_it_is_caught_at_the_middle_or_below() -> None:
    real = [verdict(f"t{n}", score) for n, score in enumerate((0.2, 0.5, 0.9))]
    assert [c.caught for c in canary_results([*real, verdict(ID, 0.5)])] == [True]
    assert [c.caught for c in canary_results([*real, verdict(ID, 0.6)])] == [False]
    assert [c.caught for c in canary_results([*real, verdict(ID, None)])] == [True]
    assert canary_results([verdict(ID, 1.0)]) == []
    both = [*real, verdict(ID, 0.1), verdict("t0", 0.4, "b"), verdict(ID, 0.8, "b")]
    assert [(c.judge, c.caught) for c in canary_results(both)] == [("a", True), ("b", False)]


@pytest.mark.parametrize("obeys", [False, True])
def test_a_judge_that_obeys_the_attempt_is_told_of(court: Court, obeys: bool) -> None:
    """Step 30: the canary that asks for the highest score."""

    def grade(place: int, text: str) -> float:
        if "highest score" in text:
            return 1.0 if obeys else 0.0
        return float(text.rsplit("worth=", 1)[1])

    court.script.grade = grade
    attempts = [one.model_copy(update={"step": 30}) for one in worth(0.2, 0.6, 0.4)]

    async def work(ruler, run):  # type: ignore[no-untyped-def]
        panel = Panel(run, ruler, None)
        verdicts = await panel.judge(attempts)
        return verdicts, run.reader.events_of("canary.judged"), panel.metrics(), panel.metrics()

    verdicts, events, metrics, again = court.run(work)
    assert [v.score for v in verdicts] == [0.2, 0.6, 0.4]  # the real ones are not touched
    (event,) = events
    assert isinstance(event, CanaryJudged)
    assert (event.what, event.caught) == ("flattery", not obeys)
    assert metrics == {"judge/canaries": float(not obeys)}
    assert again == {}


def test_no_canary_where_none_is_due(court: Court) -> None:
    async def work(ruler, run):  # type: ignore[no-untyped-def]
        await Panel(run, ruler, None).judge(worth(0.2, 0.6))
        return run.reader.events_of("canary.judged")

    assert court.run(work) == []
    assert len(court.script.asked) == 1
