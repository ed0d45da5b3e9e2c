"""Table, notes and comparison of real runs, over HTTP and in the terminal."""

import json
from pathlib import Path

import pytest

from engine.protocol.problems import Refused
from engine.protocol.records.run_notes import RunNotes
from engine.protocol.requests.run_table import CompareRuns, RunQuery
from tests.engine_http.conftest import Engine
from tests.support.engine_starter import run_command


def test_runs_are_listed_noted_and_compared(engine: Engine, project: Path) -> None:
    quick = {"train.groups": 2, "train.group_size": 2, "train.validate_every": 1}
    first = engine.train(project, **{"train.steps": 2, **quick})
    engine.wait(first)
    second = engine.train(project, **{"train.steps": 1, "train.lr": 0.003, **quick})
    engine.wait(second)

    page = engine.call(lambda client: client.run_page(RunQuery(project=str(project))))
    assert [run.id for run in page.items] == [second.id, first.id]
    assert page.items[0].settings["train.lr"] == 0.003
    assert page.items[1].best is not None
    assert page.items[1].best.count == 2

    noted = engine.call(
        lambda client: client.note_run(
            first.id, RunNotes(tags=("base",), note="the reference", pinned=True)
        )
    )
    assert noted.notes.tags == ("base",)
    page = engine.call(lambda client: client.run_page(RunQuery(project=str(project))))
    assert [run.id for run in page.items] == [first.id, second.id]
    assert page.tags == {"base": 1}

    found = engine.call(
        lambda client: client.compare_runs(CompareRuns(runs=[first.id, second.id], at="last"))
    )
    assert (found.measure, [one.step for one in found.runs]) == ("reward", [2, 1])
    assert {row.key for row in found.settings} >= {"train.lr", "train.steps"}
    assert len(found.scenarios) == 2
    assert found.runs[1].versus is not None
    assert found.runs[1].versus.against == first.name
    with pytest.raises(Refused, match="given twice"):
        engine.call(lambda client: client.compare_runs(CompareRuns(runs=[first.id, first.id])))

    listed = run_command("runs", str(project), "--tag", "base")
    assert first.name in listed.stdout
    assert second.name not in listed.stdout
    archived = run_command("note", second.path, "--archive", "--tag", "weak", "--json")
    assert json.loads(archived.stdout) == {
        "tags": ["weak"], "note": "", "pinned": False, "archived": True,
    }  # fmt: skip
    assert second.name in run_command("runs", str(project), "--archived").stdout
    compared = run_command("compare", first.path, second.path, "--last").stdout
    assert "train.lr" in compared
    assert "no difference shown" in compared
    alone = run_command("compare", first.path)
    assert alone.returncode
    assert "2 to 8 can be compared" in alone.stderr
