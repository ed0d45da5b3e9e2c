"""The judge against a provider that misbehaves on purpose: real HTTP, the real process."""

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
from engine.storage.run_folder.run import Run
from engine.trust.addresses import confirm_address
from tests.engine.judge.conftest import Court, group, worth

VALUES = [0.1, 0.9, 0.4, 0.6, 0.3, 0.8, 0.2, 0.7]


def scores(verdicts: list[Verdict]) -> list[float | None]:
    return [verdict.score for verdict in verdicts]


def test_a_group_is_scored_and_quotes_are_checked(court: Court) -> None:
    verdicts = court.run(lambda ruler, run: ruler.judge(worth(*VALUES)))
    assert scores(verdicts) == VALUES
    assert [quote.found for quote in verdicts[0].quotes] == [True, False]
    assert verdicts[0].reason
    assert len(court.script.asked) == 1


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
"""Text in the second question that names the fault, by kind of reply."""


@pytest.mark.parametrize("mood", FAULTS)
def test_an_answer_with_a_fault_is_asked_for_once_more(court: Court, mood: str) -> None:
    court.script.moods = [mood]
    verdicts = court.run(lambda ruler, run: ruler.judge(worth(*VALUES)))
    assert scores(verdicts) == VALUES
    assert len(court.script.asked) == 2
    assert FAULTS[mood] in court.script.asked[1]["messages"][-1]["content"]


def test_a_missing_entry_that_stays_missing_leaves_one_unscored(court: Court) -> None:
    court.script.moods = ["one missing"] * 2
    verdicts = court.run(lambda ruler, run: ruler.judge(worth(*VALUES)))
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
def test_a_reply_that_cannot_be_trusted_is_rejected_whole_with_its_true_reason(
    court: Court, mood: str, code: str
) -> None:
    court.script.moods = [mood] * 2
    verdicts = court.run(lambda ruler, run: ruler.judge(worth(*VALUES)))
    assert scores(verdicts) == [None] * len(VALUES)
    assert {verdict.problem.code for verdict in verdicts if verdict.problem} == {code}
    assert len(court.script.asked) == 2


def test_negative_usage_counts_at_its_highest(court: Court) -> None:
    court.script.moods = ["negative usage"]

    async def cost(ruler: Ruler, run: Run) -> float:
        await ruler.judge(worth(*VALUES))
        return run.reader.judge_cost()

    assert court.run(cost) > 0


@pytest.mark.parametrize("mood", ["permuted", "prose", "429", "429 after", "500", "reset"])
def test_what_can_be_overcome_is(court: Court, mood: str) -> None:
    court.script.moods = [mood]
    assert scores(court.run(lambda ruler, run: ruler.judge(worth(*VALUES)))) == VALUES


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
def test_what_cannot_leaves_the_group_unscored_and_says_why(
    court: Court, mood: str, code: str
) -> None:
    court.script.moods = [mood] * 9
    begun = time.monotonic()
    settings = {"retries": 1, "timeout_s": 1.5}
    verdicts = court.run(lambda ruler, run: ruler.judge(worth(*VALUES)), **settings)
    assert scores(verdicts) == [None] * 8
    problems = {verdict.problem.code for verdict in verdicts if verdict.problem}
    assert problems == {code}
    assert time.monotonic() - begun < 30


def test_equal_attempts_are_shown_once(court: Court) -> None:
    attempts = group("worth=0.2", "worth=0.7", "worth=0.2", "worth=0.2")
    assert scores(court.run(lambda ruler, run: ruler.judge(attempts))) == [0.2, 0.7, 0.2, 0.2]
    assert court.script.asked[0]["messages"][1]["content"].count("worth=0.2") == 1


def test_the_same_question_is_never_paid_twice(court: Court) -> None:
    court.own_process = True
    for _ in range(2):  # another process, the same run folder
        court.run(lambda ruler, run: ruler.judge(worth(*VALUES)))
    assert len(court.script.asked) == 1
    assert set(court.script.billed.values()) == {1}
    court.own_process = False
    court.run(lambda ruler, run: ruler.judge(worth(*VALUES)), temperature=0.5)
    assert len(court.script.asked) == 2


def test_equal_groups_at_once_are_paid_once(court: Court) -> None:
    async def both(ruler, run):  # type: ignore[no-untyped-def]
        return await asyncio.gather(*(ruler.judge(worth(0.1, 0.9)) for _ in range(4)))

    assert [scores(verdicts) for verdicts in court.run(both)] == [[0.1, 0.9]] * 4
    assert len(court.script.asked) == 1


def test_the_budget_is_never_exceeded(court: Court) -> None:
    async def many(ruler, run):  # type: ignore[no-untyped-def]
        verdicts = []
        for number in range(12):
            verdicts += await ruler.judge(group(f"{number} worth=0.1", f"{number} worth=0.9"))
        return verdicts, run.reader.judge_cost()

    one = 150 * 10e-6
    verdicts, cost = court.run(many, budget_usd=0.03, max_tokens=200)
    unscored = [verdict for verdict in verdicts if verdict.score is None]
    assert cost <= 0.03
    assert sum(court.script.billed.values()) * one == pytest.approx(cost)
    assert {v.problem.code for v in unscored if v.problem} == {"judge.budget"}
    assert 0 < len(unscored) < len(verdicts)


def test_a_trial_beside_a_run_shares_its_purse(court: Court) -> None:
    """Two ledgers over one run: together within the budget, an equal question asked once."""

    async def both(ruler, run):  # type: ignore[no-untyped-def]
        other = Ruler(ruler._config, ruler._rubric, other_ledger(ruler, run), seed=0)
        attempts = [group(f"{n} worth=0.1", f"{n} worth=0.9") for n in range(12)]
        await asyncio.gather(*(r.judge(a) for a in attempts for r in (ruler, other)))
        return run.reader.judge_cost()

    def other_ledger(ruler: Ruler, run: Run) -> Ledger:
        return Ledger(run, ruler._ledger._provider, ruler._config)

    assert court.run(both, budget_usd=0.03, max_tokens=200) <= 0.03
    assert len(court.script.asked) == len(set(court.script.billed))


def test_an_answer_that_was_lost_counts_at_its_highest(court: Court) -> None:
    court.script.moods = ["drip"] * 3

    async def work(ruler, run):  # type: ignore[no-untyped-def]
        await ruler.judge(worth(0.1, 0.9))
        return run.reader.judge_cost()

    lost = court.run(work, timeout_s=0.5, retries=2, max_tokens=1000)
    assert lost > 3 * 1000 * 10e-6


def test_failed_attempts_are_not_shown(court: Court) -> None:
    attempts = worth(0.1, 0.9, 0.5)
    attempts[1] = attempts[1].model_copy(
        update={"problem": Problem(code="agent.timeout", message="late"), "awaits_judge": False}
    )
    verdicts = court.run(lambda ruler, run: ruler.judge(attempts))
    assert [verdict.trajectory_id for verdict in verdicts] == ["t0-0", "t0-2"]


@pytest.mark.parametrize("count", [1, 3])
def test_equal_attempts_and_single_ones_show_their_answer(court: Court, count: int) -> None:
    """Validation groups have one attempt: what all begin with must not swallow it."""
    court.run(lambda ruler, run: ruler.judge(worth(*[0.4] * count)))
    shown = court.script.asked[0]["messages"][1]["content"]
    assert shown.index("What is it worth?") < shown.index("worth=0.4")
    assert "(nothing of its own)" not in shown


def test_what_another_judge_could_not_do_is_judged_again(court: Court) -> None:
    problem = Problem(code="judge.budget", message="The judge's budget is used up.")
    attempts = [one.model_copy(update={"problem": problem}) for one in worth(0.1, 0.9)]
    assert scores(court.run(lambda ruler, run: ruler.judge(attempts))) == [0.1, 0.9]


def test_the_prompt_of_art_refuses_criteria() -> None:
    rubric = parse_rubric("---\ncriteria:\n- name: kind\n---\nBe kind.")
    with pytest.raises(ConfigError, match="weighted criteria"):
        check_fit(JudgeConfig(models=("openai/a",), prompt="art"), rubric)


def test_an_answer_without_usage_counts_at_its_highest(court: Court) -> None:
    court.script.moods = ["no usage"]

    async def work(ruler, run):  # type: ignore[no-untyped-def]
        return await ruler.judge(worth(0.1, 0.9)), run.reader.judge_cost()

    verdicts, cost = court.run(work, max_tokens=1000)
    assert scores(verdicts) == [0.1, 0.9]
    assert cost > 1000 * 10e-6


def test_verdicts_become_rewards_and_are_stored(court: Court) -> None:
    async def work(ruler, run):  # type: ignore[no-untyped-def]
        attempts = worth(0.1, 0.9)
        for attempt in attempts:
            await run.writer.add_trajectory(attempt)
        await judge_group(run, Panel(run, ruler, None), attempts)
        stored = run.reader.stored("train", 1)
        return stored, run.reader.verdicts([t.id for t in stored]), run.reader.events()

    stored, verdicts, events = court.run(work)
    assert [t.reward for t in stored] == [0.1, 0.9]
    assert [t.parts for t in stored] == [{PART: 0.1}, {PART: 0.9}]
    assert not any(t.awaits_judge for t in stored)
    assert scores(verdicts) == [0.1, 0.9]
    assert any('"group.judged"' in event for event in events)


def test_several_judges_are_combined(court: Court) -> None:
    names = ("openai/a", "openai/b", "openai/c")
    config = court.config(models=names, combine="median")
    verdicts = court.run(lambda ruler, run: ruler.judge(worth(0.1, 0.9)), models=names)
    assert len(verdicts) == 6
    shifted = [
        v.model_copy(update={"score": min(1.0, v.score + 0.05 * (v.judge == "openai/a"))})
        for v in verdicts
        if v.score is not None
    ]
    assert combined(config, shifted) == {"t0-0": 0.1, "t0-1": 0.9}


def test_more_passes_until_two_agree(court: Court) -> None:
    court.run(lambda ruler, run: ruler.judge(worth(*VALUES)), passes=5)
    assert len(court.script.asked) == 2
    orders = [asked["messages"][1]["content"] for asked in court.script.asked]
    assert orders[0] != orders[1]


def test_an_order_biased_judge_is_exposed_and_passes_help(court: Court) -> None:
    """It likes what is shown first: alone it ranks by place, over passes the truth comes out."""
    chance = random.Random(0)
    noise: dict[tuple[int, str], float] = {}

    def biased(place: int, text: str) -> float:
        worthy = float(text.rsplit("worth=", 1)[1].split()[0])
        jitter = noise.setdefault((place, text), chance.uniform(0, 0.02))
        return min(1.0, max(0.0, 0.35 * worthy + 0.6 * (1 - place / 8) + jitter))

    court.script.grade = biased
    taus: dict[int, list[float]] = {1: [], 9: []}
    stabilities = []
    turned = compared = 0
    for passes, found in taus.items():
        for number in range(6):
            values = random.Random(number).sample(VALUES, 8)
            attempts = group(*(f"{number}: worth={value}" for value in values))
            verdicts = court.run(
                lambda ruler, run, attempts=attempts: ruler.judge(attempts),
                passes=passes,
                stable=0.999,
            )
            tau = kendall_tau([v.score or 0.0 for v in verdicts], values)
            assert tau is not None
            found.append(tau)
            if passes > 1:
                stabilities.append(verdicts[0].stability)
                flipped = order_flips({v.trajectory_id: v.passes for v in verdicts})
                turned, compared = turned + flipped[0], compared + flipped[1]
    once, often = (sum(found) / len(found) for found in taus.values())
    assert often > once + 0.2
    assert turned / compared > 0.3, "the order decides a third of the pairs"
    assert all(stability is not None and stability < 0.6 for stability in stabilities)


def test_the_key_is_in_no_file(court: Court) -> None:
    court.own_process = True
    confirm_address("openai", court.script.url)
    court.script.moods = ["500"]
    court.run(lambda ruler, run: ruler.judge(worth(*VALUES)))
    assert court.script.headers[0]["authorization"] == "Bearer sk-secret-123"
    for file in court.folder.rglob("*"):
        if file.is_file():
            assert b"sk-secret-123" not in file.read_bytes(), file
