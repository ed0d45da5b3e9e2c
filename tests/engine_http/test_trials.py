"""Judge trials over a real engine: rubric versions, prices, trials, disagreements."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.client import EngineClient
from engine.judge.providers.local_servers import Server, find_judges
from engine.protocol.events.run import RunFinished
from engine.protocol.problems import Refused
from engine.protocol.records.judging import Tried, version_of
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import Command, ImportRun, SaveRubric, TryJudge
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import Engine, make_project, until
from tests.engine_http.test_judge import JUDGE, letters

pytestmark = pytest.mark.usefixtures("real_cache")
RUBRIC = "More letters are better.\n"


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[Script]:
    """Provider of the module: its address does not change, so one judge process is enough."""
    with provider(Script()) as script:
        yield script


@pytest.fixture
def script(shared_provider: Script) -> Script:
    """Provider without recorded requests."""
    fresh = Script(grade=letters, url=shared_provider.url)
    vars(shared_provider).update(vars(fresh))
    return shared_provider


@pytest.fixture
def lab(engine: Engine, workspace: Path, tiny_model: Path, script: Script) -> Path:
    """Project with a disabled judge."""
    engine.call(lambda client: client.lend_keys({"openai": "sk-x"}))
    toml = JUDGE.format(url=script.url).replace("enabled = true", "enabled = false")
    return make_project(workspace / "lab", tiny_model, toml=toml)


@pytest.fixture
def imported_run(engine: Engine, lab: Path) -> RunSummary:
    """Two groups of four trajectories with rewards from elsewhere."""
    return import_two_groups(engine, lab)


def import_two_groups(engine: Engine, project: Path) -> RunSummary:
    body = ImportRun(source=str(trajectories_file(project)))
    return engine.call(lambda client: client.import_run(str(project), body))


def trajectories_file(project: Path) -> Path:
    """Write two groups of four trajectories as JSONL, each with a rule-based reward."""
    file = project / "attempts.jsonl"
    with file.open("w") as lines:
        for question, reply in itertools.product("12", ("abcd", "1234", "ab12", "a123")):
            messages = [
                {"role": "user", "content": f"Say {question}"},
                {"role": "assistant", "content": reply},
            ]
            entry = {"messages": messages, "reward": letters(0, reply)}
            lines.write(json.dumps(entry) + "\n")
    return file


@pytest.fixture
def trained_run(engine: Engine, lab: Path) -> RunSummary:
    """Finished run with rule-based rewards."""
    run = engine.train(lab, **{"train.steps": 1, "train.validate_every": 0})
    engine.wait(run)
    return run


def run_trial(engine: Engine, run: RunSummary, request: TryJudge) -> list[Tried]:
    async def all_of(client: EngineClient) -> list[Tried]:
        return [one async for one in client.try_judge(run.id, request)]

    return engine.call(all_of)


def test_rubric_versions_are_stored(engine: Engine, lab: Path) -> None:
    project = lab
    assert engine.call(lambda client: client.rubric(str(project))).versions == []
    for words in ("one", "one", "two"):
        request = SaveRubric(source=words, who="me")
        view = engine.call(lambda client, r=request: client.save_rubric(str(project), r))
    assert [one.source for one in view.versions] == ["one", "two"]
    (project / "rubric.md").write_text("three")  # changed by another program
    view = engine.call(lambda client: client.rubric(str(project)))
    assert [(one.number, one.who) for one in view.versions] == [
        (1, "me"),
        (2, "me"),
        (3, "outside"),
    ]
    broken = SaveRubric(source="---\ncriteria: 3\n---\n")
    with pytest.raises(Refused, match="cannot be used"):
        engine.call(lambda client: client.save_rubric(str(project), broken))
    assert (project / "rubric.md").read_text() == "three"


def test_trial_stays_within_price_and_is_cached(
    engine: Engine, imported_run: RunSummary, script: Script
) -> None:
    request = TryJudge(source=RUBRIC)
    price = engine.call(lambda client: client.price_trial(imported_run.id, request))
    assert (price.groups, price.calls, price.cached) == (2, 2, 0)
    assert script.asked == []
    assert 0 < price.usd <= price.most_usd
    results = run_trial(engine, imported_run, request)
    assert sorted(one.group for one in results) == [0, 1]
    assert all(len(one.after) == len(one.before) == 4 for one in results)
    number_of_calls = len(script.asked)
    assert price.calls <= number_of_calls <= price.most_calls
    again = engine.call(lambda client: client.price_trial(imported_run.id, request))
    assert (again.calls, again.cached, again.usd) == (0, 2, 0.0)
    run_trial(engine, imported_run, request)
    assert len(script.asked) == number_of_calls
    other = TryJudge(source="Fewer letters.", places=[("train", 1, 1)])
    assert [one.group for one in run_trial(engine, imported_run, other)] == [1]


def test_client_disconnect_cancels_trial_and_run_resumes(
    engine: Engine, trained_run: RunSummary, script: Script
) -> None:
    stored = trained_run
    script.moods = ["drip"] * 20

    async def read_one(client: EngineClient) -> None:
        async for _ in client.try_judge(stored.id, TryJudge(source=RUBRIC)):
            raise AssertionError("the trial finished too early")

    async def disconnect(client: EngineClient) -> None:
        job = asyncio.create_task(read_one(client))
        await asyncio.to_thread(until, lambda: bool(script.asked), 60)
        with pytest.raises(Refused, match="judge is scoring this run"):
            await client.command(stored.id, Command(action="resume", steps=2))
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)

    def resumed() -> bool:
        """Rejected until the engine has noticed the disconnect."""
        order = Command(action="resume", steps=2)
        try:
            engine.call(lambda client: client.command(stored.id, order))
        except Refused:
            return False
        return True

    engine.call(disconnect)
    script.moods = []
    until(resumed)
    assert isinstance(engine.wait(stored)[-1], RunFinished)
    assert len(script.asked) <= 2  # one per group, none of them answered


def test_disagreements_agreement_and_suggested_rubric(
    engine: Engine, imported_run: RunSummary, script: Script
) -> None:
    request = TryJudge(source=RUBRIC)
    results = {one.group: one for one in run_trial(engine, imported_run, request)}
    ranked = sorted(results[0].after, key=lambda name: results[0].after[name])
    # the judge's worst first
    contradicting = Word(kind="order", order=tuple((name,) for name in ranked))
    label = Label(
        id="a", step=1, group=0, words=(contradicting,), why="shorter is better", blind=True
    )
    engine.call(lambda client: client.add_label(imported_run.id, label))
    same = label.model_copy(update={"id": "b"})
    engine.call(lambda client: client.add_label(imported_run.id, same))
    (row,) = engine.call(lambda client: client.agreement(imported_run.id))
    assert row.tau is not None
    assert row.tau.mean < 0
    assert (row.groups, row.repeats) == (1, 1)
    assert row.self_consistency is not None
    assert row.self_consistency.mean == 1.0
    cases = engine.call(lambda client: client.disagreements(imported_run.id, row.judge, row.rubric))
    assert cases
    assert cases[0].why == "shorter is better shorter is better"
    (again,) = [one for one in run_trial(engine, imported_run, request) if one.group == 0]
    assert again.pairs > again.obeyed
    proposed = engine.call(lambda client: client.suggest_rubric(imported_run.id, request))
    assert proposed.source == "Better words.\n"
    assert "shorter is better" in script.asked[-1]["messages"][1]["content"]


def test_label_used_as_example_changes_the_rubric_version(
    engine: Engine, imported_run: RunSummary, script: Script
) -> None:
    request = TryJudge(source=RUBRIC, places=[("train", 1, 1)])
    run_trial(engine, imported_run, request)
    names = ("t00001-000-000", "t00001-000-001")
    word = Word(kind="order", order=tuple((name,) for name in names))
    label = Label(id="a", step=1, group=0, words=(word,), teaches=True, why="because I say so")
    engine.call(lambda client: client.add_label(imported_run.id, label))
    run_trial(engine, imported_run, request)
    assert "because I say so" in script.asked[-1]["messages"][1]["content"]
    assert len(engine.call(lambda client: client.agreement(imported_run.id))) == 2  # two versions


def test_trial_without_judge_is_rejected(engine: Engine, project: Path) -> None:
    run = import_two_groups(engine, project)
    with pytest.raises(Refused, match="No judge is set"):
        run_trial(engine, run, TryJudge(source=RUBRIC))


def test_local_judge_servers_are_found(script: Script) -> None:
    port = int(script.url.split(":")[2].split("/")[0])
    servers = (Server("LM Studio", port, "/v1/models"), Server("nobody", 1, "/v1/models"))
    (option,) = asyncio.run(find_judges(servers))
    assert (option.model, option.base_url) == ("openai/scripted", script.url)
    assert option.where == "LM Studio on this machine"


def test_new_rubric_of_active_run_survives_restart(
    engine: Engine, workspace: Path, tiny_model: Path, script: Script
) -> None:
    project = make_project(workspace / "renew", tiny_model, toml=JUDGE.format(url=script.url))
    (project / "rubric.md").write_text(RUBRIC)
    settings = {"train.steps": 2, "train.validate_every": 0, "train.review_every": 1}
    run = engine.train(project, **settings)
    engine.wait_for(run, "review.opened")
    order = Command(action="use_rubric", rubric="Fewer letters.")
    engine.call(lambda client: client.command(run.id, order))
    broken = Command(action="use_rubric", rubric="---\nno end")
    with pytest.raises(Refused, match="cannot be used"):
        engine.call(lambda client: client.command(run.id, broken))
    engine.call(lambda client: client.command(run.id, Command(action="stop_now")))
    engine.call(lambda client: client.command(run.id, Command(action="resume")))
    for step in (1, 2):
        until(
            lambda s=step: (
                engine.call(lambda c: c.run(run.id)).state == "reviewing"
                and engine.call(lambda c: c.run(run.id)).step == s - 1
            )
        )
        engine.call(lambda client: client.command(run.id, Command(action="reviewed")))
    engine.wait(run)
    versions = [
        {
            verdict.rubric
            for verdict in engine.call(lambda c, s=step: c.siblings(run.id, "train", s, 0)).verdicts
        }
        for step in (1, 2)
    ]
    assert versions == [{version_of(RUBRIC)}, {version_of("Fewer letters.")}]
