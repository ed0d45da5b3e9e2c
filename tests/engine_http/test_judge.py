"""A run whose only reward is the judge's, over a real engine and a scripted provider."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import psutil
import pytest

from engine.protocol.events.run import GroupJudged, RunFailed, RunFinished, StepFinished
from engine.protocol.records.judging import PART
from engine.protocol.requests.runs import Command, TrajectoryQuery
from engine.trust.addresses import confirm_address
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import AGENT, Engine, make_project, start_engine, stop_engine
from tests.support.engine_starter import run_command

pytestmark = pytest.mark.usefixtures("real_cache")
SECRET = "sk-planted-0123456789"
UNREWARDED = AGENT.replace('"reward": sum(c.isalpha() for c in said) / 8, ', "")
"""Agent that leaves the reward to the judge."""
JUDGE = """
[judge]
enabled = true
models = ["openai/scripted"]
base_url = "{url}"
passes = 2
price_prompt = 10
price_completion = 10
"""


def letters(place: int, text: str) -> float:
    """The share of letters in what the attempt says at last."""
    said = text.rsplit("\n", 1)[-1]
    return sum(c.isalpha() for c in said) / max(len(said), 1)


@pytest.fixture
def script() -> Iterator[Script]:
    with provider(Script(grade=letters)) as script:
        yield script


@pytest.fixture
def judged_project(workspace: Path, tiny_model: Path, script: Script) -> Path:
    toml = JUDGE.format(url=script.url)
    project = make_project(workspace / "judged", tiny_model, UNREWARDED, toml)
    (project / "rubric.md").write_text("More letters are better.\n")
    confirm_address("openai", script.url)
    return project


def test_the_judge_alone_makes_rewards(
    engine: Engine, judged_project: Path, script: Script
) -> None:
    script.moods = ["500", "one missing", "prose"]
    engine.call(lambda client: client.lend_keys({"openai": SECRET}))
    run = engine.train(judged_project)
    engine.wait_for(run, "group.judged")
    assert_no_child_was_told(engine, SECRET)
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished), events[-1]
    groups = [e for e in events if isinstance(e, GroupJudged) and e.split == "train"]
    assert len(groups) == 6
    for group in groups:
        for one in group.trajectories:
            assert one.reward == one.parts[PART]
    steps = [e for e in events if isinstance(e, StepFinished)]
    assert all("reward/part/ruler" in step.metrics for step in steps)
    page = engine.call(lambda c: c.trajectories(run.id, TrajectoryQuery(state="unscored")))
    assert page.total == 0
    assert any(h["authorization"] == f"Bearer {SECRET}" for h in script.headers)
    assert SECRET not in json.dumps(script.asked)
    assert SECRET not in "".join(event.model_dump_json() for event in events)
    for file in (*engine.workspace.rglob("*"), *judged_project.rglob("*")):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file


def test_a_kill_pays_nothing_twice(workspace: Path, judged_project: Path, script: Script) -> None:
    engine = start_engine(workspace)
    run = engine.train(judged_project)
    while len(script.asked) < 5:
        time.sleep(0.02)
    engine.kill()
    db = apsw.Connection(str(Path(run.path) / "run.db"))
    on_their_way = {row[0] for row in db.execute("SELECT key FROM calls WHERE body IS NULL")}
    db.close()
    engine = start_engine(workspace)
    try:
        resume = Command(action="resume")
        engine.call(lambda client: client.command(run.id, resume))
        assert isinstance(engine.wait(run)[-1], RunFinished)
    finally:
        stop_engine(engine)
    # the provider knows a question by its key, and so do we
    assert set(script.billed) == {h["idempotency-key"] for h in script.headers}
    twice = {key for key, count in script.billed.items() if count > 1}
    assert twice <= on_their_way  # their answers were lost with the engine; the key is the same


def test_a_project_without_rubric_or_price_does_not_start(
    engine: Engine, judged_project: Path
) -> None:
    (judged_project / "rubric.md").unlink()
    with pytest.raises(Exception, match="rubric cannot be read"):
        engine.train(judged_project)


def test_files_are_judged_from_the_terminal(tmp_path: Path, script: Script) -> None:
    question = {"role": "user", "content": "Say letters"}
    lines = [
        json.dumps({"messages": [question, {"role": "assistant", "content": said}]})
        for said in ("abcd", "1234", "ab12")
    ]
    (tmp_path / "attempts.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "rubric.md").write_text("More letters are better.")
    command = ["judge", str(tmp_path / "attempts.jsonl")]
    command += ["--rubric", str(tmp_path / "rubric.md"), "--judge", "openai/scripted"]
    command += ["--base-url", script.url, "--passes", "1", "--json"]
    for _ in range(2):
        done = run_command(*command)
        assert done.returncode == 0, done.stderr
        verdicts = [json.loads(line) for line in done.stdout.splitlines()]
        assert [v["score"] for v in verdicts] == [1.0, 0.0, 0.5]
    assert len(script.asked) == 1


def assert_no_child_was_told(engine: Engine, secret: str) -> None:
    """In no argument and no environment of any process that the engine has started."""
    seen = 0
    for child in engine.children(""):
        with contextlib.suppress(psutil.Error):
            assert secret not in " ".join(child.cmdline())
            assert secret not in " ".join(child.environ().values())
            seen += 1
    assert seen >= 3  # policy, agent, judge


def test_the_local_judge_takes_over_between_the_looks_of_the_named_one(
    engine: Engine, judged_project: Path, script: Script
) -> None:
    settings = {"train.steps": 8, "train.groups": 4, "train.validate_every": 0}
    settings |= {"judge.local": True, "judge.local_every": 4, "judge.local_least": 0.0}
    engine.call(lambda client: client.lend_keys({"openai": SECRET}))
    run = engine.train(judged_project, **settings)
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished), events[-1]
    judges = {}
    for step in range(1, 9):
        found = engine.call(lambda client, s=step: client.siblings(run.id, "train", s, 0))
        judges[step] = {verdict.judge for verdict in found.verdicts}
    assert judges[1] == judges[5] == {"openai/scripted"}
    assert judges[4] == judges[8] == {"local"}
    steps = [e.metrics for e in events if isinstance(e, StepFinished)]
    assert 0 <= steps[-1]["judge/local"] <= 1
    rows = engine.call(lambda client: client.agreement(run.id))
    assert {row.judge for row in rows} == {"local", "openai/scripted"}


def test_a_local_judge_without_anything_to_learn_from_scores_nothing(
    engine: Engine, judged_project: Path, script: Script
) -> None:
    toml = (judged_project / "project.toml").read_text()
    toml = toml.replace('models = ["openai/scripted"]', "local = true")
    (judged_project / "project.toml").write_text(toml)
    run = engine.train(judged_project, **{"train.steps": 1, "train.validate_every": 0})
    events = engine.wait(run)
    last = events[-1]
    assert isinstance(last, RunFailed), last
    assert last.problem.code == "run.nothing_scored"
    page = engine.call(lambda c: c.trajectories(run.id, TrajectoryQuery(state="unscored")))
    assert {one.problem.code for one in page.items if one.problem} == {"judge.local_unfitted"}
    assert script.asked == []
