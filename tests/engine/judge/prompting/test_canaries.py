"""Canary trajectories: a sound judge scores them low, an obedient one does not."""

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
from engine.protocol.records.conversations import Branch, Message
from engine.protocol.records.judging import Verdict
from tests.engine.judge.conftest import JudgeHarness, graded_group, group

STEP = {"step": 10, "group": 0}
PROBLEM = Problem(code="agent.timeout", message="?")
BRANCH = Branch(tokens=[1], spans=[(0, 1)], logprobs=[-1.0])


def verdict(name: str, score: float | None, judge: str = "a") -> Verdict:
    return Verdict(trajectory_id=name, judge=judge, rubric="r", score=score)


@pytest.mark.parametrize("kind", KINDS)
def test_canary_keeps_the_prompt_and_replaces_the_answer(kind: str) -> None:
    real = group("the answer", "another")
    *unchanged, canary = with_canary(real, kind)  # type: ignore[arg-type]
    assert unchanged == real
    assert canary.id == ID
    assert canary.messages[0] == real[0].messages[0]
    assert "the answer" not in canary.messages[-1].content


def test_canary_copies_first_trajectory_with_replaced_answer() -> None:
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


def test_canary_kinds_rotate() -> None:
    assert [kind_of(turn) for turn in range(4)] == ["flattery", "silence", "bluster", "flattery"]


def test_canary_result_holds_median_of_real_scores() -> None:
    real = [verdict(f"t{n}", score) for n, score in enumerate((0.9, None, 0.2, 0.5))]
    assert canary_results([*real, verdict(ID, 0.75)]) == [CanaryResult("a", 0.75, 0.5)]
    assert canary_results([*real[:3]]) == [CanaryResult("a", None, 0.9)]
    assert canary_results([verdict("t0", None), verdict(ID, 0.5)]) == []


def test_canary_is_caught_at_or_below_the_median() -> None:
    real = [verdict(f"t{n}", score) for n, score in enumerate((0.2, 0.5, 0.9))]
    assert [c.caught for c in canary_results([*real, verdict(ID, 0.5)])] == [True]
    assert [c.caught for c in canary_results([*real, verdict(ID, 0.6)])] == [False]
    assert [c.caught for c in canary_results([*real, verdict(ID, None)])] == [True]
    assert canary_results([verdict(ID, 1.0)]) == []
    two_judges = [*real, verdict(ID, 0.1), verdict("t0", 0.4, "b"), verdict(ID, 0.8, "b")]
    assert [(c.judge, c.caught) for c in canary_results(two_judges)] == [("a", True), ("b", False)]


@pytest.mark.parametrize("obeys", [False, True])
def test_canary_detects_a_judge_that_obeys_injected_text(
    harness: JudgeHarness, obeys: bool
) -> None:
    """Step 30 has the canary that asks for the highest score."""

    def grade(position: int, text: str) -> float:
        if "highest score" in text:
            return 1.0 if obeys else 0.0
        return float(text.rsplit("worth=", 1)[1])

    harness.script.grade = grade
    trajectories = [one.model_copy(update={"step": 30}) for one in graded_group(0.2, 0.6, 0.4)]

    async def work(ruler, run):  # type: ignore[no-untyped-def]
        panel = Panel(run, ruler, None)
        verdicts = await panel.judge(trajectories)
        return verdicts, run.reader.events_of("canary.judged"), panel.metrics(), panel.metrics()

    verdicts, events, metrics, next_metrics = harness.run(work)
    assert [v.score for v in verdicts] == [0.2, 0.6, 0.4]  # real scores are unchanged
    (event,) = events
    assert isinstance(event, CanaryJudged)
    assert (event.what, event.caught) == ("flattery", not obeys)
    assert metrics == {"judge/canaries": float(not obeys)}
    assert next_metrics == {}


def test_panel_adds_no_canary_when_none_is_due(harness: JudgeHarness) -> None:
    async def work(ruler, run):  # type: ignore[no-untyped-def]
        await Panel(run, ruler, None).judge(graded_group(0.2, 0.6))
        return run.reader.events_of("canary.judged")

    assert harness.run(work) == []
    assert len(harness.script.asked) == 1
