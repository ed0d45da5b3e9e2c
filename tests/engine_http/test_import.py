"""Imported trajectories over a real engine: import, labels, judge, undo."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.bench.rival import environment
from engine.protocol.events.run import RunFinished
from engine.protocol.problems import Refused
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import (
    Command,
    ImportRun,
    ImportScenarios,
    TrajectoryQuery,
    TryJudge,
)
from engine.storage.run_db.reader import RunReader
from tests.engine.integrations.importers.traces.files import (
    genai_calls,
    otlp,
    otlp_span,
    write_lines,
)
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import Engine, make_project
from tests.engine_http.test_judge import JUDGE, letters
from tests.engine_http.test_labels import table_rows
from tests.support.engine_starter import run_command

WRITER = Path(__file__).parents[1] / "engine" / "integrations" / "importers" / "art_writer.py"
pytestmark = pytest.mark.usefixtures("real_cache")


@pytest.fixture
def script() -> Iterator[Script]:
    with provider(Script(grade=letters)) as script:
        yield script


@pytest.fixture
def trajectories_file(tmp_path: Path) -> Path:
    """Three trajectories of one scenario, one of them without a reward."""
    entries: list[dict[str, Any]] = []
    for reply, reward in (("abcd", 0.5), ("1234", 0.5), ("ab12", None)):
        messages = [{"role": "user", "content": "Say"}, {"role": "assistant", "content": reply}]
        entries.append({"messages": messages, "reward": reward})
    file = tmp_path / "talk.jsonl"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return file


def import_source(engine: Engine, project: Path, source: Path) -> RunSummary:
    body = ImportRun(source=str(source))
    return engine.call(lambda client: client.import_run(str(project), body))


def test_imported_run_is_labelled_and_label_undone(
    engine: Engine, project: Path, trajectories_file: Path
) -> None:
    run = import_source(engine, project, trajectories_file)
    assert (run.kind, run.name, run.state, run.unscored) == ("imported", "talk", "finished", 1)
    assert [one.id for one in engine.call(lambda client: client.runs(str(project)))] == [run.id]
    before = table_rows(run, "trajectories", "groups")
    siblings = engine.call(lambda client: client.siblings(run.id, "train", 1, 0))
    assert siblings.group.advantages == [0.0, 0.0, None]
    best = Word(kind="best", trajectory_id=siblings.trajectories[2].id)
    label = Label(id="l1", step=1, group=0, words=(best,))
    preview = engine.call(lambda client: client.preview_label(run.id, label))
    assert preview.enters == "no step"
    done = engine.call(lambda client: client.add_label(run.id, label))
    assert done.group.advantages == [one.new_advantage for one in preview.outcomes]
    assert done.group.advantages[2] == max(a for a in done.group.advantages if a is not None) > 0
    assert engine.call(lambda client: client.run(run.id)).unscored == 0
    engine.call(lambda client: client.undo_label(run.id))
    assert table_rows(run, "trajectories", "groups") == before
    with pytest.raises(Refused, match="no weights"):
        engine.call(lambda client: client.command(run.id, Command(action="extend", steps=9)))


def test_imported_run_is_judged(
    engine: Engine, workspace: Path, tiny_model: Path, trajectories_file: Path, script: Script
) -> None:
    toml = JUDGE.format(url=script.url).replace("enabled = true", "enabled = false")
    project = make_project(workspace / "lab", tiny_model, toml=toml)
    run = import_source(engine, project, trajectories_file)
    engine.call(lambda client: client.lend_keys({"openai": "sk-x"}))
    body = TryJudge(source="More letters are better.")

    async def judge(client: Any) -> list[Any]:
        return [result async for result in client.try_judge(run.id, body)]

    (trial,) = engine.call(judge)
    verdicts = engine.call(lambda client: client.siblings(run.id, "train", 1, 0)).verdicts
    scores = {verdict.trajectory_id: verdict.score for verdict in verdicts}
    assert [scores[name] for name in sorted(scores)] == [1.0, 0.0, 0.5], trial


def test_judge_command_scores_imported_unrewarded_trajectories(
    project: Path, trajectories_file: Path, tmp_path: Path, script: Script
) -> None:
    (tmp_path / "rubric.md").write_text("More letters are better.")
    done = run_command("import", str(project), str(trajectories_file), "--json")
    run = RunSummary.model_validate_json(done.stdout)
    command = ["judge", run.path, "--rubric", str(tmp_path / "rubric.md"), "--passes", "1"]
    command += ["--judge", "openai/scripted", "--base-url", script.url]
    for _ in range(2):  # the second time from the ledger, without changes
        done = run_command(*command)
        assert done.returncode == 0, done.stderr
        reader = RunReader(Path(run.path) / "run.db")
        trajectories, group = reader.stored("train", 1, 0), reader.group("train", 1, 0)
        reader.close()
        assert [one.reward for one in trajectories] == [0.5, 0.5, 0.5]
        assert [one.parts for one in trajectories] == [
            {"reward": 0.5},
            {"reward": 0.5},
            {"ruler": 0.5},
        ]
        assert group is not None
        assert group.advantages == [one.advantage for one in trajectories] == [0.0, 0.0, 0.0]
    assert len(script.asked) == 1


def test_art_folder_is_imported_completely(engine: Engine, project: Path, tmp_path: Path) -> None:
    home = tmp_path / ".art" / "shop" / "models" / "agent-001"
    subprocess.run([str(environment()), str(WRITER), str(home)], check=True)
    run = import_source(engine, project, tmp_path / ".art")
    assert (run.trajectories, run.unscored, run.step, run.steps) == (11, 1, 3, 3)
    assert isinstance(engine.wait(run)[-1], RunFinished)
    page = engine.call(lambda client: client.trajectories(run.id, TrajectoryQuery(filter="blue")))
    assert [one.id for one in page.items] == ["t00000-000-000"]


def test_invalid_line_rejects_import_without_leftovers(
    engine: Engine, project: Path, trajectories_file: Path
) -> None:
    with trajectories_file.open("a") as file:
        file.write('{"nothing": 1}\n')
    with pytest.raises(Refused) as raised:
        import_source(engine, project, trajectories_file)
    assert raised.value.problem.where == f"{trajectories_file}:4"
    done = run_command("import", str(project), str(trajectories_file))
    assert (done.returncode, f"{trajectories_file}:4" in done.stderr) == (2, True)
    assert not (project / "runs").exists()
    assert engine.call(lambda client: client.runs(str(project))) == []


def test_import_command(project: Path, trajectories_file: Path) -> None:
    done = run_command("import", str(project), str(trajectories_file), "--json")
    assert done.returncode == 0, done.stderr
    run = RunSummary.model_validate_json(done.stdout)
    assert (run.kind, run.trajectories, run.unscored) == ("imported", 3, 1)


@pytest.fixture
def traces_file(tmp_path: Path) -> Path:
    """Two calls of one conversation in OTLP JSON; the answer has an e-mail address."""
    asked, answered = genai_calls()
    parts = [{"type": "text", "content": "It rains, says ann@x.org."}]
    answered["gen_ai.output.messages"] = json.dumps([{"role": "assistant", "parts": parts}])
    spans = otlp(otlp_span(1, asked), otlp_span(2, answered))
    return write_lines(tmp_path / "spans.json", spans)


def test_traces_are_imported_as_run_and_as_scenarios(
    engine: Engine, project: Path, traces_file: Path
) -> None:
    body = ImportRun(source=str(traces_file), mask=True)
    run = engine.call(lambda client: client.import_run(str(project), body))
    assert (run.kind, run.name, run.trajectories, run.unscored) == ("imported", "spans", 1, 1)
    one = engine.call(lambda client: client.siblings(run.id, "train", 1, 0)).trajectories[0]
    assert one.turns == 2
    whole = engine.call(lambda client: client.trajectory(run.id, one.id))
    assert whole.messages[-1].content == "It rains, says <EMAIL_1>."
    request = ImportScenarios(source=str(traces_file), split="validation")
    counts = []
    for _ in range(2):
        done = engine.call(lambda client: client.import_scenarios(str(project), request))
        counts.append((done.new, done.repeated))
    assert counts == [(1, 0), (0, 1)]
    page = engine.call(lambda client: client.scenarios(str(project), "validation"))
    assert page.items[-1].data["messages"][1] == {"role": "user", "content": "Weather in Paris?"}


def test_import_command_reads_traces(project: Path, traces_file: Path) -> None:
    done = run_command("import", str(project), str(traces_file), "--mask")
    assert done.returncode == 0, done.stderr
    first, note = done.stdout.splitlines()
    assert first.startswith("1 trajectories, 1 of them unscored. Run folder: ")
    assert note == "Masked: e-mail addresses 1."
    done = run_command("import", str(project), str(traces_file), "--as", "scenarios")
    assert done.stdout.startswith("1 new scenario. File: "), done.stderr
    done = run_command("import", str(project), str(traces_file), "--split", "train")
    assert (done.returncode, "--as scenarios" in done.stderr) == (2, True)
