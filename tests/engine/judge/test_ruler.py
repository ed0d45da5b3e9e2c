"""Judge (RULER) against a provider with injected faults: real HTTP, real judge process."""

import asyncio
import random
import time

import pytest

from engine.judge.calibration.agreement import kendall_tau
from engine.judge.calibration.measurement import order_flips
from engine.judge.panel import Panel
from engine.judge.prompting.rubric import parse_rubric
from engine.judge.providers.ledger import Ledger
from engine.judge.ruler import Ruler, check_fit, combined
from engine.judge.scoring import judge_group
from engine.protocol.config.project import JudgeConfig
from engine.protocol.problems import ConfigError, Problem
from engine.protocol.records.judging import PART, Verdict
from engine.protocol.records.runs import Trajectory
from engine.storage.run_folder.run import Run
from engine.trust.addresses import confirm_address
from tests.engine.judge.conftest import JudgeHarness, graded_group, group

VALUES = [0.1, 0.9, 0.4, 0.6, 0.3, 0.8, 0.2, 0.7]


def scores(verdicts: list[Verdict]) -> list[float | None]:
    return [verdict.score for verdict in verdicts]


def test_group_is_scored_and_quotes_are_verified(harness: JudgeHarness) -> None:
    verdicts = harness.run(lambda ruler, run: ruler.judge(graded_group(*VALUES)))
    assert scores(verdicts) == VALUES
    assert [quote.found for quote in verdicts[0].quotes] == [True, False]
    assert verdicts[0].reason
    assert len(harness.script.asked) == 1


FAULTS = {
    "one missing": "is missing",
    "stranger": "not asked for",
    "out of range": "is 7",
    "scale of ten": "scores are numbers from 0 to 1",
    "nan": "not a JSON object",
    "twice": "twice, with different scores",
    "two answers": "2 different answers",
    "draft": "cut at the token limit",
    "cut": "cut at the token limit",
    "filtered": "content filter",
}
"""Text in the second request that names the fault, by kind of reply."""


@pytest.mark.parametrize("mood", FAULTS)
def test_faulty_reply_is_retried_once_with_the_complaint(harness: JudgeHarness, mood: str) -> None:
    harness.script.moods = [mood]
    verdicts = harness.run(lambda ruler, run: ruler.judge(graded_group(*VALUES)))
    assert scores(verdicts) == VALUES
    assert len(harness.script.asked) == 2
    assert FAULTS[mood] in harness.script.asked[1]["messages"][-1]["content"]


def test_missing_entry_after_retry_leaves_one_trajectory_unscored(harness: JudgeHarness) -> None:
    harness.script.moods = ["one missing"] * 2
    verdicts = harness.run(lambda ruler, run: ruler.judge(graded_group(*VALUES)))
    unscored = [verdict for verdict in verdicts if verdict.score is None]
    assert len(unscored) == 1
    assert unscored[0].problem is not None
    assert unscored[0].problem.code == "judge.no_score"
    assert [v.score for v in verdicts if v.score is not None] == [
        value for value, v in zip(VALUES, verdicts, strict=True) if v.score is not None
    ]


@pytest.mark.parametrize(
    ("mood", "code"),
    [
        ("out of range", "judge.no_score"),
        ("scale of ten", "judge.no_score"),
        ("nan", "judge.no_score"),
        ("twice", "judge.no_score"),
        ("two answers", "judge.no_score"),
        ("draft", "judge.cut"),
        ("cut", "judge.cut"),
        ("filtered", "judge.content_filter"),
    ],
)
def test_untrusted_reply_leaves_the_group_unscored_with_its_reason(
    harness: JudgeHarness, mood: str, code: str
) -> None:
    harness.script.moods = [mood] * 2
    verdicts = harness.run(lambda ruler, run: ruler.judge(graded_group(*VALUES)))
    assert scores(verdicts) == [None] * len(VALUES)
    assert {verdict.problem.code for verdict in verdicts if verdict.problem} == {code}
    assert len(harness.script.asked) == 2


def test_negative_usage_still_counts_as_cost(harness: JudgeHarness) -> None:
    harness.script.moods = ["negative usage"]

    async def cost(ruler: Ruler, run: Run) -> float:
        await ruler.judge(graded_group(*VALUES))
        return run.reader.judge_cost()

    assert harness.run(cost) > 0


@pytest.mark.parametrize("mood", ["permuted", "prose", "429", "429 after", "500", "reset"])
def test_recoverable_faults_still_give_scores(harness: JudgeHarness, mood: str) -> None:
    harness.script.moods = [mood]
    assert scores(harness.run(lambda ruler, run: ruler.judge(graded_group(*VALUES)))) == VALUES


@pytest.mark.parametrize(
    ("mood", "code"),
    [
        ("429", "judge.rate_limit"),
        ("500", "judge.server"),
        ("reset", "judge.unreachable"),
        ("overflow", "judge.context"),
        ("drip", "judge.timeout"),
        ("truncated", "judge.no_score"),
    ],
)
def test_unrecoverable_faults_leave_the_group_unscored_with_a_code(
    harness: JudgeHarness, mood: str, code: str
) -> None:
    harness.script.moods = [mood] * 9
    start = time.monotonic()
    settings = {"retries": 1, "timeout_s": 1.5}
    verdicts = harness.run(lambda ruler, run: ruler.judge(graded_group(*VALUES)), **settings)
    assert scores(verdicts) == [None] * 8
    problems = {verdict.problem.code for verdict in verdicts if verdict.problem}
    assert problems == {code}
    assert time.monotonic() - start < 30


def test_identical_trajectories_are_shown_once(harness: JudgeHarness) -> None:
    trajectories = group("worth=0.2", "worth=0.7", "worth=0.2", "worth=0.2")
    assert scores(harness.run(lambda ruler, run: ruler.judge(trajectories))) == [0.2, 0.7, 0.2, 0.2]
    assert harness.script.asked[0]["messages"][1]["content"].count("worth=0.2") == 1


def test_identical_request_is_billed_once_across_processes(harness: JudgeHarness) -> None:
    harness.own_process = True
    for _ in range(2):  # a second process over the same run folder
        harness.run(lambda ruler, run: ruler.judge(graded_group(*VALUES)))
    assert len(harness.script.asked) == 1
    assert set(harness.script.billed.values()) == {1}
    harness.own_process = False
    harness.run(lambda ruler, run: ruler.judge(graded_group(*VALUES)), temperature=0.5)
    assert len(harness.script.asked) == 2


def test_concurrent_identical_groups_are_billed_once(harness: JudgeHarness) -> None:
    async def judge_all(ruler, run):  # type: ignore[no-untyped-def]
        return await asyncio.gather(*(ruler.judge(graded_group(0.1, 0.9)) for _ in range(4)))

    assert [scores(verdicts) for verdicts in harness.run(judge_all)] == [[0.1, 0.9]] * 4
    assert len(harness.script.asked) == 1


def test_cost_never_exceeds_the_budget(harness: JudgeHarness) -> None:
    async def many(ruler, run):  # type: ignore[no-untyped-def]
        verdicts = []
        for number in range(12):
            verdicts += await ruler.judge(group(f"{number} worth=0.1", f"{number} worth=0.9"))
        return verdicts, run.reader.judge_cost()

    one = 150 * 10e-6
    verdicts, cost = harness.run(many, budget_usd=0.03, max_tokens=200)
    unscored = [verdict for verdict in verdicts if verdict.score is None]
    assert cost <= 0.03
    assert sum(harness.script.billed.values()) * one == pytest.approx(cost)
    assert {v.problem.code for v in unscored if v.problem} == {"judge.budget"}
    assert 0 < len(unscored) < len(verdicts)


def test_concurrent_ledgers_of_one_run_share_the_budget(harness: JudgeHarness) -> None:
    """Two ledgers over one run: total cost within the budget, identical requests sent once."""

    async def judge_all(ruler, run):  # type: ignore[no-untyped-def]
        other = Ruler(ruler._config, ruler._rubric, other_ledger(ruler, run), seed=0)
        trajectories = [group(f"{n} worth=0.1", f"{n} worth=0.9") for n in range(12)]
        await asyncio.gather(*(r.judge(a) for a in trajectories for r in (ruler, other)))
        return run.reader.judge_cost()

    def other_ledger(ruler: Ruler, run: Run) -> Ledger:
        return Ledger(run, ruler._ledger._provider, ruler._config)

    assert harness.run(judge_all, budget_usd=0.03, max_tokens=200) <= 0.03
    assert len(harness.script.asked) == len(set(harness.script.billed))


def test_lost_reply_counts_as_maximum_cost(harness: JudgeHarness) -> None:
    harness.script.moods = ["drip"] * 3

    async def work(ruler, run):  # type: ignore[no-untyped-def]
        await ruler.judge(graded_group(0.1, 0.9))
        return run.reader.judge_cost()

    cost = harness.run(work, timeout_s=0.5, retries=2, max_tokens=1000)
    assert cost > 3 * 1000 * 10e-6


def test_failed_trajectories_are_not_judged(harness: JudgeHarness) -> None:
    trajectories = graded_group(0.1, 0.9, 0.5)
    trajectories[1] = trajectories[1].model_copy(
        update={"problem": Problem(code="agent.timeout", message="late"), "awaits_judge": False}
    )
    verdicts = harness.run(lambda ruler, run: ruler.judge(trajectories))
    assert [verdict.trajectory_id for verdict in verdicts] == ["t0-0", "t0-2"]


@pytest.mark.parametrize("count", [1, 3])
def test_identical_or_single_trajectories_show_their_answer(
    harness: JudgeHarness, count: int
) -> None:
    """A shared prefix must not hide the answer in groups of one (validation)."""
    harness.run(lambda ruler, run: ruler.judge(graded_group(*[0.4] * count)))
    prompt = harness.script.asked[0]["messages"][1]["content"]
    assert prompt.index("What is it worth?") < prompt.index("worth=0.4")
    assert "(nothing of its own)" not in prompt


def test_trajectory_unscored_by_another_judge_is_judged_again(harness: JudgeHarness) -> None:
    problem = Problem(code="judge.budget", message="The judge's budget is used up.")
    trajectories = [one.model_copy(update={"problem": problem}) for one in graded_group(0.1, 0.9)]
    assert scores(harness.run(lambda ruler, run: ruler.judge(trajectories))) == [0.1, 0.9]


def test_art_prompt_rejects_weighted_criteria() -> None:
    rubric = parse_rubric("---\ncriteria:\n- name: kind\n---\nBe kind.")
    with pytest.raises(ConfigError, match="weighted criteria"):
        check_fit(JudgeConfig(models=("openai/a",), prompt="art"), rubric)


def test_missing_usage_counts_as_maximum_cost(harness: JudgeHarness) -> None:
    harness.script.moods = ["no usage"]

    async def work(ruler, run):  # type: ignore[no-untyped-def]
        return await ruler.judge(graded_group(0.1, 0.9)), run.reader.judge_cost()

    verdicts, cost = harness.run(work, max_tokens=1000)
    assert scores(verdicts) == [0.1, 0.9]
    assert cost > 1000 * 10e-6


def test_verdicts_become_rewards_and_are_stored(harness: JudgeHarness) -> None:
    async def work(ruler, run):  # type: ignore[no-untyped-def]
        trajectories = graded_group(0.1, 0.9)
        for trajectory in trajectories:
            await run.writer.add_trajectory(trajectory)
        await judge_group(run, Panel(run, ruler, None), trajectories)
        stored = run.reader.stored("train", 1)
        return stored, run.reader.verdicts([t.id for t in stored]), run.reader.events()

    stored, verdicts, events = harness.run(work)
    assert [t.reward for t in stored] == [0.1, 0.9]
    assert [t.parts for t in stored] == [{PART: 0.1}, {PART: 0.9}]
    assert not any(t.awaits_judge for t in stored)
    assert scores(verdicts) == [0.1, 0.9]
    assert any('"group.judged"' in event for event in events)


def test_verdicts_of_several_judges_are_combined_by_median(harness: JudgeHarness) -> None:
    names = ("openai/a", "openai/b", "openai/c")
    config = harness.config(models=names, combine="median")
    verdicts = harness.run(lambda ruler, run: ruler.judge(graded_group(0.1, 0.9)), models=names)
    assert len(verdicts) == 6
    shifted = [
        v.model_copy(update={"score": min(1.0, v.score + 0.05 * (v.judge == "openai/a"))})
        for v in verdicts
        if v.score is not None
    ]
    assert combined(config, shifted) == {"t0-0": 0.1, "t0-1": 0.9}


def test_passes_stop_when_two_agree(harness: JudgeHarness) -> None:
    harness.run(lambda ruler, run: ruler.judge(graded_group(*VALUES)), passes=5)
    assert len(harness.script.asked) == 2
    orders = [request["messages"][1]["content"] for request in harness.script.asked]
    assert orders[0] != orders[1]


def test_position_bias_is_detected_and_reduced_by_passes(harness: JudgeHarness) -> None:
    """A judge that prefers what is shown first ranks by position; more passes recover the order."""
    rng = random.Random(0)
    noise: dict[tuple[int, str], float] = {}

    def biased(position: int, text: str) -> float:
        true_score = float(text.rsplit("worth=", 1)[1].split()[0])
        jitter = noise.setdefault((position, text), rng.uniform(0, 0.02))
        return min(1.0, max(0.0, 0.35 * true_score + 0.6 * (1 - position / 8) + jitter))

    harness.script.grade = biased
    taus: dict[int, list[float]] = {1: [], 9: []}
    stabilities = []
    flips = comparisons = 0
    for passes, taus_ in taus.items():
        for number in range(6):
            values = random.Random(number).sample(VALUES, 8)
            trajectories = group(*(f"{number}: worth={value}" for value in values))
            verdicts = harness.run(
                lambda ruler, run, trajectories=trajectories: ruler.judge(trajectories),
                passes=passes,
                stable=0.999,
            )
            tau = kendall_tau([v.score or 0.0 for v in verdicts], values)
            assert tau is not None
            taus_.append(tau)
            if passes > 1:
                stabilities.append(verdicts[0].stability)
                flip_counts = order_flips({v.trajectory_id: v.passes for v in verdicts})
                flips, comparisons = flips + flip_counts[0], comparisons + flip_counts[1]
    once, often = (sum(taus_) / len(taus_) for taus_ in taus.values())
    assert often > once + 0.2
    assert flips / comparisons > 0.3, "presentation order should flip over 30% of the pairs"
    assert all(stability is not None and stability < 0.6 for stability in stabilities)


def test_api_key_is_written_to_no_file(harness: JudgeHarness) -> None:
    harness.own_process = True
    confirm_address("openai", harness.script.url)
    harness.script.moods = ["500"]
    harness.run(lambda ruler, run: ruler.judge(graded_group(*VALUES)))
    assert harness.script.headers[0]["authorization"] == "Bearer sk-secret-123"
    for file in harness.folder.rglob("*"):
        if file.is_file():
            assert b"sk-secret-123" not in file.read_bytes(), file


def with_reasoning(*thoughts: str) -> list[Trajectory]:
    """Graded trajectories whose last answer follows these reasonings."""
    found = []
    for one, thought in zip(graded_group(0.5, 0.5), thoughts, strict=True):
        *start, last = one.messages
        messages = [*start, last.model_copy(update={"reasoning": thought})]
        found.append(one.model_copy(update={"messages": messages}))
    return found


def test_reasoning_is_shown_to_the_judge_unless_turned_off(harness: JudgeHarness) -> None:
    thinking = with_reasoning("first idea", "second idea")
    harness.run(lambda ruler, run: ruler.judge(thinking))
    (shown,) = harness.script.asked
    prompt = shown["messages"][-1]["content"]
    assert "(reasoning) first idea" in prompt
    assert "(reasoning) second idea" in prompt
    harness.run(lambda ruler, run: ruler.judge(thinking), show_reasoning=False)
    _, hidden = harness.script.asked
    assert "idea" not in str(hidden["messages"])


def test_same_messages_without_reasoning_are_not_billed_twice(harness: JudgeHarness) -> None:
    settings = {"show_reasoning": False}
    harness.run(lambda ruler, run: ruler.judge(with_reasoning("a", "b")), **settings)
    harness.run(lambda ruler, run: ruler.judge(with_reasoning("c", "d")), **settings)
    assert len(harness.script.asked) == 1
