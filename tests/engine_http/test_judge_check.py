"""Test judge before a training: one real question to each judge, never a stored answer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.client import EngineClient
from engine.judge.check import MADE_UP, UNHELPFUL
from engine.protocol.problems import ConfigError, Refused
from engine.protocol.records.judging import JudgeCheck
from engine.protocol.requests.arena import ArenaTicked, AskArena
from engine.trust.addresses import confirm_address
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import Engine, make_project
from tests.engine_http.test_judge import JUDGE, letters

pytestmark = pytest.mark.usefixtures("real_cache")


@pytest.fixture
def engine(own_engine: Engine) -> Engine:
    """The arena keeps its model for the next question; it ends with its engine."""
    return own_engine


@pytest.fixture
def script() -> Iterator[Script]:
    with provider(Script(grade=letters)) as script:
        yield script


@pytest.fixture
def project(engine: Engine, workspace: Path, tiny_model: Path, script: Script) -> Path:
    engine.call(lambda client: client.lend_keys({"openai": "sk-x"}))
    confirm_address("openai", script.url)
    project = make_project(workspace / "asked", tiny_model, toml=JUDGE.format(url=script.url))
    (project / "rubric.md").write_text("More letters are better.\n")
    return project


def check(engine: Engine, project: Path) -> JudgeCheck:
    return engine.call(lambda client: client.check_judges(str(project)))


def test_each_test_is_a_question_of_its_own(engine: Engine, project: Path, script: Script) -> None:
    for number in (1, 2):
        found = check(engine, project)
        assert len(script.asked) == number
    assert [one.id for one in found.attempts] == [MADE_UP, UNHELPFUL]
    assert all(one.made_up and one.text for one in found.attempts)
    (answer,) = found.answers
    assert answer.judge == "openai/scripted"
    assert answer.problem is None
    assert [one.trajectory_id for one in answer.verdicts] == [MADE_UP, UNHELPFUL]
    assert all(one.score is not None for one in answer.verdicts)
    assert answer.usage.cost_usd == pytest.approx((100 + 50) * 10 / 1e6)
    key = answer.verdicts[0].calls[0]
    call = engine.call(lambda client: client.call(found.run_id, key))
    assert "More letters are better." in str(call.messages)


def test_the_agents_own_attempt_is_shown_where_there_is_one(engine: Engine, project: Path) -> None:
    asked = AskArena(project=str(project), models=["base"], scenario="s2", seed=3)

    async def attempt(client: EngineClient) -> list[ArenaTicked]:
        return [told async for told in client.ask_arena(asked)]

    (made,) = [one.trajectory for one in engine.call(attempt) if one.trajectory]
    assert made.turns == 1
    found = check(engine, project)
    assert found.title == made.title
    assert [one.id for one in found.attempts] == [made.id, UNHELPFUL]
    assert not found.attempts[0].made_up
    assert found.attempts[0].text == made.messages[-1].content.strip()


@pytest.mark.parametrize(
    ("moods", "code"), [(["out of range"] * 2, "judge.no_score"), (["overflow"], "judge.context")]
)
def test_a_judge_that_cannot_be_used_says_why(
    engine: Engine, project: Path, script: Script, moods: list[str], code: str
) -> None:
    script.moods = list(moods)
    (answer,) = check(engine, project).answers
    assert answer.problem is not None
    assert answer.problem.code == code
    assert len(script.asked) == len(moods)
    assert all(one.score is None for one in answer.verdicts)


def test_what_is_missing_is_said_before_anything_is_asked(
    engine: Engine, project: Path, script: Script
) -> None:
    (project / "rubric.md").unlink()
    with pytest.raises((ConfigError, Refused), match="rubric"):
        check(engine, project)
    (project / "rubric.md").write_text("More letters are better.\n")
    (project / "scenarios" / "train.jsonl").write_text("")
    with pytest.raises((ConfigError, Refused), match="scenario"):
        check(engine, project)
    assert script.asked == []
