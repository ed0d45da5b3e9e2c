"""Evaluation over a real engine: checkpoints, the base model, and models of a provider."""

import io
import json
import shutil
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from engine.protocol.events.run import (
    CallClosed,
    EvaluationFinished,
    Event,
    RunFailed,
    RunFinished,
    TrajectoryRecorded,
    UnknownEvent,
)
from engine.protocol.problems import Refused
from engine.protocol.records.comparison import EvaluationResult
from engine.protocol.records.judging import PART
from engine.protocol.records.runs import RunSummary, TrajectorySummary
from engine.protocol.requests.evaluation import SystemPrompt
from engine.protocol.requests.runs import Command, StartEvaluation, TrajectoryQuery
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import is_locked
from engine.trust.addresses import confirm_address
from engine.trust.projects import trust_project
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.chat_provider import ChatScript, chat_provider
from tests.engine_http.conftest import AGENT, Engine, make_project, start_engine, stop_engine, until
from tests.support.engine_starter import run_command

pytestmark = pytest.mark.usefixtures("real_cache")
SECRET = "sk-planted-9876543210"
TOOL_AGENT = """
import openai

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}

async def rollout(scenario, model):
    messages = [{"role": "system", "content": "Be brief."}]
    messages.append({"role": "user", "content": scenario["q"]})
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        async def ask():
            answer = await client.chat.completions.create(
                model=model.name, messages=messages, tools=[TOOL], tool_choice="auto",
                temperature=0.5, stop=["END"])
            return answer.choices[0].message
        try:
            reply = await ask()
            if reply.tool_calls:
                messages.append(reply.model_dump(exclude_none=True))
                name = reply.tool_calls[0].id
                messages.append({"role": "tool", "tool_call_id": name, "content": "7"})
                reply = await ask()
        except openai.APIError:
            return 0.0
    return {"reward": sum(c.isalpha() for c in reply.content or "") / 8}
"""
PROVIDER = """
[evaluate]
base_url = "{url}"
price_prompt = 10
price_completion = 20
budget_usd = {budget}
retries = 1
"""


@pytest.fixture(scope="module")
def trained_project(shared_engine: Engine, home: Path, tiny_model: Path) -> Path:
    """Project with one run of two steps, to be copied."""
    project = make_project(home / "letters", tiny_model, AGENT)
    run = shared_engine.train(project, **{"train.steps": 2})
    last = shared_engine.wait(run)[-1]
    assert isinstance(last, RunFinished), last
    until(lambda: not is_locked(Path(run.path)))
    return project


@pytest.fixture
def letters(trained_project: Path, workspace: Path) -> Path:
    """Project with eight tagged validation scenarios."""
    project = shutil.copytree(trained_project, workspace / "letters")
    lines = [
        json.dumps({"id": f"v{n}", "q": f"Say {n}", "tag": "even" if n % 2 == 0 else "odd"})
        for n in range(8)
    ]
    (project / "scenarios" / "validation.jsonl").write_text("\n".join(lines) + "\n")
    trust_project(project)
    return project


@pytest.fixture
def chat() -> Iterator[ChatScript]:
    with chat_provider(ChatScript()) as script:
        yield script


def use_provider(project: Path, chat: ChatScript, budget: float = 5.0) -> Path:
    (project / "agent.py").write_text(TOOL_AGENT)
    with (project / "project.toml").open("a") as toml:
        toml.write(PROVIDER.format(url=chat.url, budget=budget))
    return project


def begin_evaluation(engine: Engine, project: Path, *models: str, **more: object) -> RunSummary:
    request = StartEvaluation(project=str(project), models=list(models), **more)  # type: ignore[arg-type]
    return engine.call(lambda client: client.start_evaluation(request))


def trajectories_of(engine: Engine, run: RunSummary) -> list[TrajectorySummary]:
    return engine.call(lambda c: c.trajectories(run.id, TrajectoryQuery(limit=1000))).items


def result_of(events: list[Event | UnknownEvent]) -> EvaluationResult:
    assert isinstance(events[-1], RunFinished), events[-1]
    (finished,) = [event for event in events if isinstance(event, EvaluationFinished)]
    return finished.result


def test_evaluation_survives_kill_and_equal_checkpoints_are_equal(
    workspace: Path, letters: Path
) -> None:
    """Kill the engine during the second contestant; no rollout is lost or duplicated."""
    engine = start_engine(workspace)
    engine.call(lambda client: client.project(str(letters)))
    (training,) = engine.call(lambda client: client.runs(str(letters)))
    name, again = f"{training.name}@2", f"{training.id[-6:].lower()}@best"
    slowly = {"agent.concurrency": 2}
    run = begin_evaluation(engine, letters, name, again, "base", attempts=2, overrides=slowly)
    while len(before := trajectories_of(engine, run)) < 20:
        time.sleep(0.02)
    engine.kill()
    engine = start_engine(workspace)
    try:
        engine.call(lambda client: client.project(str(letters)))
        shown = engine.call(lambda client: client.run(run.id))
        assert (shown.state, shown.trajectories >= 20) == ("stopped", True)
        partly = engine.call(lambda client: client.evaluation(run.id))
        assert partly.done == shown.trajectories
        engine.call(lambda client: client.command(run.id, Command(action="resume")))
        with pytest.raises(Refused, match="evaluating on this machine"):
            engine.train(letters)
        events = engine.wait(run)
        evaluation = result_of(events)
        recorded = [e.trajectory.id for e in events if isinstance(e, TrajectoryRecorded)]
        assert len(recorded) == len(set(recorded)) == evaluation.done == evaluation.total == 48
        assert {one.id for one in before} <= set(recorded)
        assert engine.call(lambda client: client.evaluation(run.id)) == evaluation
        check_standings(evaluation, name)
        check_trajectories(engine, run, name)
        check_logs(engine, run, evaluation)
        check_rejections(engine, letters, run, training)
    finally:
        stop_engine(engine)


def check_standings(found: EvaluationResult, name: str) -> None:
    tuned, again, base = found.standings
    assert [tuned.name, again.name, base.name] == [name, f"{name} #2", "base"]
    assert again.versus is not None
    assert again.versus.difference is not None
    assert again.versus.difference.model_dump() == {"mean": 0, "low": 0, "high": 0, "count": 8}
    assert (again.versus.p, again.versus.word) == (1.0, "no difference shown")
    assert base.versus is not None
    assert base.versus.ties < 8  # other weights, other trajectories
    assert [tag.tag for tag in found.tags] == ["even", "odd"]


def check_logs(engine: Engine, run: RunSummary, found: EvaluationResult) -> None:
    """A log of Inspect for each model, with the same mean."""
    names = engine.call(lambda client: client.inspect_logs(run.id)).names
    assert len(set(names)) == len(found.standings)
    for number, standing in enumerate(found.standings):
        content = engine.call(lambda client, n=number: client.inspect_log(run.id, n))  # type: ignore[misc]
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            header = json.loads(archive.read("header.json"))
        assert header["eval"]["model"] == f"atelier/{standing.name}"
        (reward, *_) = header["results"]["scores"]
        assert standing.reward is not None
        assert reward["metrics"]["mean"]["value"] == pytest.approx(standing.reward.mean, abs=1e-12)
    with pytest.raises(Refused, match="has no log 3"):
        engine.call(lambda client: client.inspect_log(run.id, 3))


def check_trajectories(engine: Engine, run: RunSummary, name: str) -> None:
    """Equal weights, seeds and scenarios sample the same tokens."""
    samples: dict[str, set[tuple[object, ...]]] = {}
    seeds: dict[str, set[int]] = {}
    reader = RunReader(Path(run.path) / "run.db")
    for one in reader.stored("validation", 0):
        tokens = tuple(tuple(branch.tokens) for branch in one.branches)
        samples.setdefault(one.contestant, set()).add((one.group, one.index % 2, tokens))
        seeds.setdefault(one.contestant, set()).add(one.seed)
    reader.close()
    assert samples[name] == samples[f"{name} #2"] != samples["base"]
    assert seeds[name] == seeds["base"]
    assert len(seeds["base"]) == 16
    group = engine.call(lambda client: client.siblings(run.id, "validation", 0, 3))
    assert len(group.trajectories) == len(group.group.rewards) == 6
    only = TrajectoryQuery(contestant="base")
    assert engine.call(lambda client: client.trajectories(run.id, only)).total == 16


def check_rejections(engine: Engine, project: Path, run: RunSummary, training: RunSummary) -> None:
    shown = engine.call(lambda client: client.run(run.id))
    assert (shown.kind, shown.state, shown.steps) == ("evaluation", "finished", 0)
    assert (shown.trajectories, shown.attempts, len(shown.contestants)) == (48, 48, 3)
    with pytest.raises(Refused, match="has finished"):
        engine.call(lambda client: client.command(run.id, Command(action="resume")))
    with pytest.raises(Refused, match="cannot be added"):
        engine.call(lambda client: client.command(run.id, Command(action="extend", steps=9)))
    with pytest.raises(Refused, match="is not an evaluation"):
        engine.call(lambda client: client.evaluation(training.id))
    for wrong, message in {
        "nobody": "no trained run called nobody.*PROVIDER/MODEL",
        f"{training.name}@7": "no checkpoint .*@7",
    }.items():
        with pytest.raises(Refused, match=message):
            begin_evaluation(engine, project, wrong)


def test_provider_model_uses_tools_and_is_billed(
    engine: Engine, letters: Path, chat: ChatScript
) -> None:
    use_provider(letters, chat)
    confirm_address("openai", chat.url)
    engine.call(lambda client: client.lend_keys({"openai": SECRET}))
    chat.moods = ["500"]
    systems = [SystemPrompt(name="curt", text="One word."), SystemPrompt(name="long", text="Tell.")]
    run = begin_evaluation(engine, letters, "openai/tool-model", systems=systems)
    events = engine.wait(run)
    evaluation = result_of(events)
    (remote,) = evaluation.standings
    assert remote.reward is not None
    assert (remote.reward.mean, remote.reward.count, remote.unscored) == (1.0, 8, 0)
    assert [one.variant for one in evaluation.variants] == ["curt", "long"]
    assert {row.provider for row in trajectories_of(engine, run)} == {"openai/tool-model"}
    request = chat.asked[-1]
    assert request["tools"][0]["function"]["name"] == "look_up"
    assert (request["tool_choice"], request["temperature"], request["stop"]) == (
        "auto",
        0.5,
        ["END"],
    )
    assert request["max_tokens"] == 8
    assert {body["messages"][0]["content"] for body in chat.asked} == {"One word.", "Tell."}
    one = min(trajectories_of(engine, run), key=lambda row: row.cost_usd or 0)
    whole = engine.call(lambda client: client.trajectory(run.id, one.id))
    assert whole.branches == []
    assert [message.role for message in whole.messages] == [
        "system", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert whole.messages[2].tool_calls[0]["function"]["name"] == "look_up"
    assert (whole.turns, whole.sampled_tokens) == (2, 100)
    assert whole.cost_usd == pytest.approx(2 * (100 * 10 + 50 * 20) / 1e6)
    paid = [e for e in events if isinstance(e, CallClosed)]
    assert len(paid) == len(chat.asked) == 33
    assert {call.attempt for call in paid} == {row.id for row in trajectories_of(engine, run)}
    spent = sum(call.usage.cost_usd for call in paid)
    assert remote.usd_per_1000 == pytest.approx(1000 * spent / 16)
    assert all(header["authorization"] == f"Bearer {SECRET}" for header in chat.headers)
    for file in (*engine.workspace.rglob("*"), *letters.rglob("*")):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file


def test_failed_provider_calls_are_unscored_and_budget_holds(
    engine: Engine, letters: Path, chat: ChatScript
) -> None:
    """Rollouts with failed calls are unscored even if the agent returns 0."""
    budget = 0.02
    use_provider(letters, chat, budget)
    chat.moods = ["401"] * 3
    run = begin_evaluation(engine, letters, "openai/tool-model", attempts=3)
    events = engine.wait(run)
    evaluation = result_of(events)
    problems = Counter(
        row.problem.code if row.problem else "" for row in trajectories_of(engine, run)
    )
    assert problems["provider.key"] == 3
    assert problems["evaluate.budget"] > 0
    assert problems[""] > 0
    assert evaluation.standings[0].unscored == 24 - problems[""]
    assert all((row.reward is None) == bool(row.problem) for row in trajectories_of(engine, run))
    assert sum(e.usage.cost_usd for e in events if isinstance(e, CallClosed)) <= budget
    db = apsw.Connection(str(Path(run.path) / "run.db"))
    assert float(str(db.execute("SELECT total(cost) FROM calls").get)) <= budget
    db.close()


def test_unknown_price_fails_before_any_rollout(
    engine: Engine, letters: Path, chat: ChatScript
) -> None:
    run = begin_evaluation(engine, letters, "base", "nobody/unheard-of")
    last = engine.wait(run)[-1]
    assert isinstance(last, RunFailed)
    assert "evaluate.price_prompt" in str(last.problem)
    assert trajectories_of(engine, run) == []


def test_judge_compares_contestants_with_each_other(
    engine: Engine, letters: Path, chat: ChatScript
) -> None:
    with provider(Script(grade=lambda place, text: 0.25)) as script:
        toml = f'\n[judge]\nmodels = ["openai/scripted"]\nbase_url = "{script.url}"\npasses = 1\n'
        with (use_provider(letters, chat) / "project.toml").open("a") as file:
            file.write(toml)
        (letters / "rubric.md").write_text("More letters are better.\n")
        run = begin_evaluation(engine, letters, "openai/one", "openai/other", judge=True)
        evaluation = result_of(engine.wait(run))
    assert evaluation.judged
    assert [one.unscored for one in evaluation.standings] == [0, 0]
    assert {row.parts[PART] for row in trajectories_of(engine, run)} == {0.25}
    group = engine.call(lambda client: client.siblings(run.id, "validation", 0, 0))
    assert [verdict.score for verdict in group.verdicts] == [0.25, 0.25]
    assert len(script.asked) == 8  # one call per group
    assert "openai/" not in json.dumps(script.asked)  # without model names


def test_eval_command_prints_one_json_object(engine: Engine, letters: Path) -> None:
    command = ["eval", str(letters), "--json", "--seed", "5"]
    command += ["--workspace", str(engine.workspace), "--no-judge", "--model", "base"]
    command += ["--scenarios", str(letters / "scenarios/train.jsonl")]
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    evaluation = EvaluationResult.model_validate_json(done.stdout)
    assert (evaluation.scenarios, evaluation.seed, len(evaluation.standings)) == (4, 5, 1)
