"""Ways around trust, over a real engine: settings of other people must never run as one's own."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from engine.client import EngineClient
from engine.evaluation.arena import find_arena, find_or_make_arena, make_arena
from engine.protocol.problems import AtelierError, Refused
from engine.protocol.requests.runs import Command, StartRun
from engine.runtime.ids import ulid
from engine.storage.run_folder.run import SPEC, read_spec
from engine.trust.projects import is_trusted
from tests.engine_http.conftest import Engine, make_project, until

MARK = "ran.txt"


def run_to_end(engine: Engine, project: Path, steps: int = 2) -> Path:
    run = engine.train(project, **{"train.steps": steps, "train.checkpoint_every": 1})
    engine.wait(run)
    until(lambda: engine.call(lambda client: client.info()).living_runs == 0)
    return Path(run.path)


def foreign_run(run: Path, command: str) -> Path:
    """Copy a run under another id, with a command in its settings."""
    name = ulid()
    folder = Path(shutil.copytree(run, run.parent / name))
    spec = read_spec(folder)
    agent = spec.config.agent.model_copy(update={"command": command})
    config = spec.config.model_copy(update={"agent": agent})
    changed = spec.model_copy(update={"id": name, "name": "gift", "config": config})
    (folder / SPEC).write_text(changed.model_dump_json())
    return folder


@pytest.mark.parametrize("kind", ["train", "sft"])
def test_branch_of_foreign_run_does_not_trust_its_settings(
    engine: Engine, workspace: Path, tiny_model: Path, kind: str
) -> None:
    project = make_project(workspace / "mine", tiny_model)
    run = run_to_end(engine, project)
    foreign_run(run, f"touch {workspace / MARK}")
    before = sorted((project / "runs").iterdir())
    request = StartRun(project=str(project), origin="gift@1", kind=kind)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="not trusted"):
        engine.call(lambda client: client.start_run(request))
    assert sorted((project / "runs").iterdir()) == before
    assert not (workspace / MARK).exists()


def test_new_folder_at_trusted_path_is_not_trusted(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    """File systems may reuse the inode number of a deleted folder."""
    project = make_project(workspace / "mine", tiny_model)
    number = project.stat().st_ino
    assert is_trusted(project)
    shutil.rmtree(project)
    spare = []
    for number_of_try in range(50):
        project.mkdir()
        if project.stat().st_ino == number:
            break
        spare.append(project.rename(workspace / f"spare-{number_of_try}"))
    else:
        pytest.skip("this file system does not reuse inode numbers")
    (project / "project.toml").write_text(f'[agent]\ncommand = "touch {MARK}"\n')
    assert not is_trusted(project)
    assert not engine.call(lambda client: client.project(str(project))).trusted
    with pytest.raises(Refused, match="not trusted"):
        engine.train(project)


def test_run_with_duplicate_id_is_listed_and_deleted_separately(
    own_engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    engine = own_engine
    """A copied project has the same run ids as the original."""
    mine = make_project(workspace / "mine", tiny_model)
    run = run_to_end(engine, mine)
    engine.call(lambda client: client.project(str(mine)))
    theirs = Path(shutil.copytree(mine, workspace / "theirs"))
    first = Path(shutil.copytree(mine, workspace / "another"))
    copy = theirs / "runs" / run.name

    async def views(client: EngineClient) -> dict[str, list[str]]:
        return {Path(v.path).name: [r.path for r in v.runs] for v in await client.projects()}

    assert engine.call(views) == {
        "mine": [str(run)], "theirs": [str(copy)], "another": [str(first / "runs" / run.name)],
    }  # fmt: skip
    listed = engine.call(lambda client: client.runs())
    assert len({one.id for one in listed if one.path.startswith(str(workspace))}) == 3
    own = engine.call(lambda client: client.run(run.name))
    assert (own.path, own.state) == (str(run), "finished")
    other = next(one for one in listed if one.path == str(copy))
    assert other.problem is not None
    assert other.problem.code == "store.same_id"
    with pytest.raises(AtelierError):
        engine.call(lambda c: c.command(other.id, Command(action="extend", steps=4)))
    engine.call(lambda client: client.remove_run(other.id))
    assert (run.exists(), copy.exists()) == (True, False)
    assert engine.call(lambda client: client.run(run.name)).path == str(run)


def test_runs_of_other_project_are_not_reached_through_link(
    own_engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    engine = own_engine
    mine = make_project(workspace / "mine", tiny_model)
    run = run_to_end(engine, mine)
    theirs = workspace / "theirs"
    theirs.mkdir()
    shutil.copyfile(mine / "project.toml", theirs / "project.toml")
    (theirs / "runs").symlink_to(mine / "runs")
    listed = engine.call(lambda client: client.runs())
    for one in listed:
        if one.path.startswith(str(theirs)):
            assert one.state == "damaged"
            with pytest.raises(AtelierError):
                engine.call(lambda client, one=one: client.remove_run(one.id))  # type: ignore[misc]
    assert run.exists()
    own = engine.call(lambda client: client.run(run.name))
    assert (own.path, own.state) == (str(run), "finished")


def test_link_loops_and_escape_characters_do_not_break_listing(
    own_engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    engine = own_engine
    make_project(workspace / "mine", tiny_model)
    (workspace / "loop").symlink_to(workspace / "loop")
    (workspace / "self").mkdir()
    os.symlink(workspace / "self", workspace / "self" / "runs")
    (workspace / "self" / "project.toml").symlink_to(workspace / "self" / "project.toml")
    odd = make_project(workspace / "a\n\x1b]0;x\x07b", tiny_model)
    (odd / "runs").symlink_to(odd / "runs")
    (workspace / os.fsdecode(b"latin-\xe9")).mkdir()
    (workspace / os.fsdecode(b"latin-\xe9") / "project.toml").write_text("")
    names = {Path(view.path).name for view in engine.call(lambda client: client.projects())}
    assert names >= {"mine", odd.name}


def test_foreign_arena_is_not_reused(engine: Engine, workspace: Path, tiny_model: Path) -> None:
    """Settings of a foreign arena would decide where the text of the next question is sent."""
    project = make_project(workspace / "mine", tiny_model)
    gift = asyncio.run(make_arena(project))
    spec = read_spec(gift)
    (gift / SPEC).write_text(spec.model_copy(update={"name": "gift"}).model_dump_json())
    assert find_arena(project) == gift
    own = asyncio.run(find_or_make_arena(project))
    assert own != gift
    assert asyncio.run(find_or_make_arena(project)) == own
    assert engine.call(lambda client: client.project(str(project))).trusted
