"""Test judge before training: one real question to each judge, never a cached response."""

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
    """Engine of a single test, because the arena keeps its model loaded."""
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


def run_check(engine: Engine, project: Path) -> JudgeCheck:
    return engine.call(lambda client: client.check_judges(str(project)))


def test_each_check_sends_one_question(engine: Engine, project: Path, script: Script) -> None:
    for number in (1, 2):
        checked = run_check(engine, project)
        assert len(script.asked) == number
    assert [one.id for one in checked.attempts] == [MADE_UP, UNHELPFUL]
    assert all(one.made_up and one.text for one in checked.attempts)
    (answer,) = checked.answers
    assert answer.judge == "openai/scripted"
    assert answer.problem is None
    assert [one.trajectory_id for one in answer.verdicts] == [MADE_UP, UNHELPFUL]
    assert all(one.score is not None for one in answer.verdicts)
    assert answer.usage.cost_usd == pytest.approx((100 + 50) * 10 / 1e6)
    key = answer.verdicts[0].calls[0]
    call = engine.call(lambda client: client.call(checked.run_id, key))
    assert "More letters are better." in str(call.messages)


def test_check_uses_latest_rollout_of_the_agent(engine: Engine, project: Path) -> None:
    body = AskArena(project=str(project), models=["base"], scenario="s2", seed=3)

    async def run_agent(client: EngineClient) -> list[ArenaTicked]:
        return [tick async for tick in client.ask_arena(body)]

    (trajectory,) = [one.trajectory for one in engine.call(run_agent) if one.trajectory]
    assert trajectory.turns == 1
    checked = run_check(engine, project)
    assert checked.title == trajectory.title
    assert [one.id for one in checked.attempts] == [trajectory.id, UNHELPFUL]
    assert not checked.attempts[0].made_up
    assert checked.attempts[0].text == trajectory.messages[-1].content.strip()


@pytest.mark.parametrize(
    ("moods", "code"), [(["out of range"] * 2, "judge.no_score"), (["overflow"], "judge.context")]
)
def test_unusable_judge_reports_problem(
    engine: Engine, project: Path, script: Script, moods: list[str], code: str
) -> None:
    script.moods = list(moods)
    (answer,) = run_check(engine, project).answers
    assert answer.problem is not None
    assert answer.problem.code == code
    assert len(script.asked) == len(moods)
    assert all(one.score is None for one in answer.verdicts)


def test_missing_rubric_or_scenarios_are_reported_before_any_call(
    engine: Engine, project: Path, script: Script
) -> None:
    (project / "rubric.md").unlink()
    with pytest.raises((ConfigError, Refused), match="rubric"):
        run_check(engine, project)
    (project / "rubric.md").write_text("More letters are better.\n")
    (project / "scenarios" / "train.jsonl").write_text("")
    with pytest.raises((ConfigError, Refused), match="scenario"):
        run_check(engine, project)
    assert script.asked == []
