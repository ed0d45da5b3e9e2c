"""Sample summarizer: the reward is the share of questions that the summary answers."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.samples.conftest import (
    SAMPLES,
    assert_make_data_is_reproducible,
    lines_of,
    load_importable,
    load_module,
)

FOLDER = SAMPLES / "summarizer"
SCENARIO = {
    "report": "The main pump broke at 18:13. In all 536 visitors came. Dario begins on Monday.",
    "questions": [
        {"question": "How many visitors came?", "answer": "536", "about": ["visitors"]},
        {"question": "When did the main pump break?", "answer": "18:13", "about": ["main", "pump"]},
        {"question": "When does Dario begin?", "answer": "Monday", "about": ["dario"]},
        {"question": "In which room is the scarf?", "answer": "105", "about": ["scarf"]},
    ],
}


@pytest.fixture
def agent() -> ModuleType:
    return load_module(FOLDER, "agent")


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        ("536 visitors, main pump broke at 18:13, Dario begins Monday, scarf in room 105", 0.75),
        ("536 visitors came. The pump broke at 18:13.", 0.5),
        ("18:13, 536, Monday", 0.0),
        ("536 guests", 0.0),
        ("5360 visitors", 0.0),
        ("536 visitors and 537 visitors", 0.0),
        ("536 visitors, pump 18:13, 9 cakes", 0.25),
        ("word " * 29 + "536 visitors", 0.0),
        ("word " * 28 + "536 visitors", 0.25),
        ("", 0.0),
    ],
)
def test_reward_of_a_summary(agent: ModuleType, reply: str, reward: float) -> None:
    assert agent.judge(SCENARIO, reply)["reward"] == pytest.approx(reward)


def test_answer_far_from_its_subject_does_not_count(agent: ModuleType) -> None:
    near, far = "visitors " + "so " * 4 + "536", "visitors " + "so " * 5 + "536"
    assert agent.judge(SCENARIO, near)["metrics"]["answered"] == 0.25
    assert agent.judge(SCENARIO, far)["metrics"]["answered"] == 0.0


def scenarios() -> list[dict[str, Any]]:
    names = ("train", "validation")
    return [one for name in names for one in lines_of(FOLDER, f"scenarios/{name}.jsonl")]


def test_full_report_answers_every_question(
    agent: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "LIMIT", 1000)
    monkeypatch.setattr(agent, "CLOSE", 14)
    for one in scenarios():
        assert agent.judge(one, one["report"])["reward"] == 1.0


def test_beginning_of_the_report_is_no_summary(agent: ModuleType) -> None:
    """The first thirty words of a report answer about a fifth of the questions."""
    rewards = [agent.judge(one, one["report"])["reward"] for one in scenarios()]
    assert 0.05 < sum(rewards) / len(rewards) < 0.3


def test_demonstrations_are_disjoint_and_within_limit(agent: ModuleType) -> None:
    shown = [one["messages"] for one in lines_of(FOLDER, "demonstrations.jsonl")]
    reports = {one["report"] for one in scenarios()}
    assert not reports & {user["content"] for _, user, _ in shown}
    assert {system["content"] for system, _, _ in shown} == {agent.SYSTEM}
    for _, _, reply in shown:
        assert len(agent.words(reply["content"])) <= agent.LIMIT


def test_data_is_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_importable(monkeypatch, FOLDER, "agent")
    assert_make_data_is_reproducible(
        monkeypatch, load_module(FOLDER, "make_data"), FOLDER, tmp_path
    )
