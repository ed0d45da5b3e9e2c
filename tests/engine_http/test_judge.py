"""Run with only a judge reward, over a real engine and a scripted provider."""

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
UNREWARDED = AGENT.replace('"reward": sum(c.isalpha() for c in reply) / 8, ', "")
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
    """Share of letters in the last line of a trajectory."""
    reply = text.rsplit("\n", 1)[-1]
    return sum(c.isalpha() for c in reply) / max(len(reply), 1)


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


def test_judge_is_the_only_reward_and_key_is_not_stored(
    engine: Engine, judged_project: Path, script: Script
) -> None:
    script.moods = ["500", "one missing", "prose"]
    before = engine.call(lambda client: client.forecast(str(judged_project))).judge
    assert before is not None
    assert before.usd_high is None, "no call has been paid yet"
    engine.call(lambda client: client.lend_keys({"openai": SECRET}))
    run = engine.train(judged_project)
    engine.wait_for(run, "group.judged")
    assert_secret_not_in_children(engine, SECRET)
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
    asked = len(script.asked)  # with three retries, without prompts that repeat
    assert before.calls_low - 3 <= asked <= before.calls_high + 3
    after = engine.call(lambda client: client.forecast(str(judged_project))).judge
    assert after is not None
    assert after.usd_low is not None
    paid = engine.call(lambda client: client.runs(str(judged_project)))[0].usd
    assert 0 < after.usd_low <= paid, "a failed call counts with the most it may have cost"
    assert any(h["authorization"] == f"Bearer {SECRET}" for h in script.headers)
    assert SECRET not in json.dumps(script.asked)
    assert SECRET not in "".join(event.model_dump_json() for event in events)
    for file in (*engine.workspace.rglob("*"), *judged_project.rglob("*")):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file


def test_kill_causes_no_double_payment(
    workspace: Path, judged_project: Path, script: Script
) -> None:
    engine = start_engine(workspace)
    run = engine.train(judged_project)
    while len(script.asked) < 5:
        time.sleep(0.02)
    engine.kill()
    db = apsw.Connection(str(Path(run.path) / "run.db"))
    open_calls = {row[0] for row in db.execute("SELECT key FROM calls WHERE body IS NULL")}
    db.close()
    engine = start_engine(workspace)
    try:
        resume = Command(action="resume")
        engine.call(lambda client: client.command(run.id, resume))
        assert isinstance(engine.wait(run)[-1], RunFinished)
    finally:
        stop_engine(engine)
    # the provider identifies a question by its key
    assert set(script.billed) == {h["idempotency-key"] for h in script.headers}
    twice = {key for key, count in script.billed.items() if count > 1}
    # their responses were lost with the engine; the retry used the same key
    assert twice <= open_calls


def test_run_without_rubric_is_rejected(engine: Engine, judged_project: Path) -> None:
    (judged_project / "rubric.md").unlink()
    with pytest.raises(Exception, match="rubric cannot be read"):
        engine.train(judged_project)


def test_judge_command_scores_trajectory_file(tmp_path: Path, script: Script) -> None:
    question = {"role": "user", "content": "Say letters"}
    lines = [
        json.dumps({"messages": [question, {"role": "assistant", "content": reply}]})
        for reply in ("abcd", "1234", "ab12")
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


def assert_secret_not_in_children(engine: Engine, secret: str) -> None:
    """Check arguments and environment of every process that the engine has started."""
    checked = 0
    for child in engine.child_processes(""):
        with contextlib.suppress(psutil.Error):
            assert secret not in " ".join(child.cmdline())
            assert secret not in " ".join(child.environ().values())
            checked += 1
    assert checked >= 3  # policy, agent, judge


def test_local_judge_scores_between_passes_of_remote_judge(
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
        siblings = engine.call(lambda client, s=step: client.siblings(run.id, "train", s, 0))
        judges[step] = {verdict.judge for verdict in siblings.verdicts}
    assert judges[1] == judges[5] == {"openai/scripted"}
    assert judges[4] == judges[8] == {"local"}
    steps = [e.metrics for e in events if isinstance(e, StepFinished)]
    assert 0 <= steps[-1]["judge/local"] <= 1
    rows = engine.call(lambda client: client.agreement(run.id))
    assert {row.judge for row in rows} == {"local", "openai/scripted"}


def test_unfitted_local_judge_leaves_rollouts_unscored(
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
