"""Labels over a real engine: the preview equals the effect, and labels can be undone."""

import json
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.protocol.events.run import BatchClosed, ReviewClosed, RunFinished, StepFinished
from engine.protocol.problems import Refused
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.review import REASONS, ReviewQuery
from engine.protocol.requests.runs import Command, TrajectoryQuery
from engine.storage.run_folder.run import is_locked
from engine.trust.projects import trust_project
from tests.engine_http.conftest import (
    Engine,
    delete_checkpoints_after,
    make_project,
    start_engine,
    stop_engine,
    until,
)
from tests.support.engine_starter import run_command

MUTE = """
import openai

async def rollout(scenario, model):
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        await client.chat.completions.create(
            model=model.name, messages=[{"role": "user", "content": scenario["q"]}],
        )
"""


def label(place: tuple[int, int], *words: Word, **fields: Any) -> Label:
    step, group = place
    name = fields.pop("id", f"{step}-{group}-{len(words)}-{time.monotonic_ns()}")
    return Label(id=name, step=step, group=group, words=words, **fields)


def score(trajectory: str, value: float) -> Word:
    return Word(kind="score", trajectory_id=trajectory, value=value)


def tone(trajectory: str, value: str) -> Word:
    return Word(kind="field", trajectory_id=trajectory, name="tone", text=value)


def table_rows(run: RunSummary, *tables: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of these tables from the database file."""
    with sqlite3.connect(f"file:{run.path}/run.db?mode=ro", uri=True) as db:
        return {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def send_label(engine: Engine, run: RunSummary, given: Label) -> None:
    engine.call(lambda client: client.add_label(run.id, given))


@pytest.fixture(scope="module")
def finished_run(
    shared_engine: Engine, home: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunSummary, Path]:
    """Run of one step, and a copy of its project before any label."""
    project = make_project(home / "finished", tiny_model)
    fields = {"tone": {"kind": "choice", "choices": ["rude", "kind"]}}
    values = {"labels.fields": fields, "reward.weights": {"label/tone": 0.5}}
    run = shared_engine.train(project, **{"train.steps": 1, **values})
    shared_engine.wait(run)
    until(lambda: not is_locked(Path(run.path)))
    return run, shutil.copytree(project, tmp_path_factory.mktemp("kept") / "finished")


def test_label_changes_advantages_as_previewed_and_undo_restores_rows(
    own_engine: Engine, finished_run: tuple[RunSummary, Path]
) -> None:
    engine = own_engine
    project = shutil.copytree(finished_run[1], engine.workspace / "preview")
    trust_project(project)
    (run,) = engine.call(lambda client: client.runs(str(project)))
    before = table_rows(run, "trajectories", "groups")
    siblings = engine.call(lambda client: client.siblings(run.id, "train", 1, 0))
    ids = [one.id for one in siblings.trajectories]
    words = [
        [Word(kind="best", trajectory_id=ids[2])],
        [Word(kind="veto", trajectory_id=ids[0]), score(ids[1], 0.9)],
        [Word(kind="exclude", trajectory_id=ids[3]), Word(kind="flag", trajectory_id=ids[1])],
        [Word(kind="order", order=((ids[1],), (ids[0], ids[2])))],
    ]
    states = []
    for number, words_of_label in enumerate(words):
        new_label = label((1, 0), *words_of_label, id=f"l{number}", why="because")
        preview = engine.call(
            lambda client, new_label=new_label: client.preview_label(run.id, new_label)
        )
        done = engine.call(lambda client, new_label=new_label: client.add_label(run.id, new_label))
        assert done.group.advantages == [one.new_advantage for one in preview.outcomes]
        assert done.group.rewards == [one.new_reward for one in preview.outcomes]
        assert preview.enters == "no step"
        assert (done.label.who, done.label.why) != ("", "")
        states.append(table_rows(run, "trajectories", "groups"))
    assert len({json.dumps(state, default=repr) for state in states}) == 4
    again = engine.call(lambda client: client.add_label(run.id, label((1, 0), *words[0], id="l0")))
    assert again.label.id == "l0"  # the same label is stored once
    assert len(engine.call(lambda client: client.labels(run.id))) == 4
    stop_engine(engine)
    restarted = start_engine(engine.workspace)  # undo and redo survive a restart
    try:
        restarted.call(lambda client: client.project(str(project)))
        for state in [*states[2::-1], before]:
            restarted.call(lambda client: client.undo_label(run.id))
            assert table_rows(run, "trajectories", "groups") == state
        with pytest.raises(Refused, match="no label to undo"):
            restarted.call(lambda client: client.undo_label(run.id))
        for state in states:
            restarted.call(lambda client: client.redo_label(run.id))
            assert table_rows(run, "trajectories", "groups") == state
        with pytest.raises(Refused, match="no undone label to redo"):
            restarted.call(lambda client: client.redo_label(run.id))
        query = TrajectoryQuery(labelled=True)
        assert restarted.call(lambda client: client.trajectories(run.id, query)).total == 4
    finally:
        stop_engine(restarted)


def test_invalid_label_is_rejected_with_reason(
    engine: Engine, finished_run: tuple[RunSummary, Path]
) -> None:
    run, _ = finished_run
    first = "t00001-000-000"
    wrong = [
        (label((1, 0), score("t00001-001-000", 1)), "not a trajectory of this group"),
        (label((9, 0), score(first, 1)), "not complete"),
        (label((1, 0), Word(kind="order", order=((first,),))), "at least two"),
        (label((1, 0), Word(kind="best")), "needs a trajectory"),
        (label((1, 0), Word(kind="score", trajectory_id=first)), "needs a value"),
        (label((1, 0), Word(kind="field", trajectory_id=first, name="mood")), "no label field"),
        (label((1, 0), tone(first, "loud")), "Choose one of: rude, kind"),
    ]
    for given, words in wrong:
        with pytest.raises(Refused) as refused:
            send_label(engine, run, given)
        problem = refused.value.problem
        assert words in f"{problem.message} {problem.hint}"


def test_label_for_another_run_or_without_run_is_rejected(
    engine: Engine, finished_run: tuple[RunSummary, Path]
) -> None:
    """Trajectory ids are the same in every run: only the run's id distinguishes them."""
    run, _ = finished_run
    before = table_rows(run, "labels", "trajectories", "groups")
    new_label = label((1, 0), score("t00001-000-000", 1))
    for named in ("", "01JD5MAMBERKESTREL00000000"):
        body = new_label.model_copy(update={"run_id": named}).model_dump(mode="json")
        for route in ("labels", "labels/preview"):
            refused = httpx.post(
                f"http://127.0.0.1:{engine.port}/runs/{run.id}/{route}",
                json=body,
                headers={"Authorization": f"Bearer {engine.token}"},
                verify=False,
            )
            assert refused.status_code == 409
            assert refused.json()["code"] == "label.other_run"
    assert table_rows(run, "labels", "trajectories", "groups") == before


def score_by_letters(engine: Engine, run: RunSummary, step: int) -> None:
    """Label all groups of a step by the share of letters in the replies."""
    groups = engine.call(lambda client: client.groups(run.id, TrajectoryQuery(step=step)))
    for group in groups.items:
        trajectories = engine.call(
            lambda client, n=group.group: client.siblings(run.id, "train", step, n)
        ).trajectories
        replies = {one.id: one.messages[-1].content for one in trajectories}
        words = (score(n, sum(c.isalpha() for c in t) / max(len(t), 1)) for n, t in replies.items())
        send_label(engine, run, label((step, group.group), *words))


def test_run_trains_on_labels_without_judge_or_rules(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    """Trajectories are unscored until the review, then the step trains on the labels."""
    project = make_project(workspace / "mute", tiny_model, agent=MUTE)
    settings = {"train.steps": 3, "train.review_every": 1, "train.validate_every": 0}
    run = engine.train(project, **settings)
    for step in (1, 2, 3):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            summary = engine.call(lambda client: client.run(run.id))
            if summary.state == "reviewing" and summary.step == step - 1:
                break
            time.sleep(0.1)
        score_by_letters(engine, run, step)
        engine.call(lambda client: client.command(run.id, Command(action="reviewed")))
    events = engine.wait(run)
    steps = [e for e in events if isinstance(e, StepFinished)]
    assert isinstance(events[-1], RunFinished)
    assert [e.by for e in events if isinstance(e, ReviewClosed)] == ["person"] * 3
    assert not any(step.skipped for step in steps)
    assert all(step.metrics["reward/part/label"] > 0 for step in steps)
    assert all(step.metrics["grad_norm"] > 0 for step in steps)
    assert steps[0].metrics["groups/labelled"] == 2


def test_review_ends_after_timeout(engine: Engine, project: Path) -> None:
    run = engine.train(
        project, **{"train.steps": 2, "train.review_every": 2, "train.review_timeout_s": 0.2}
    )
    events = engine.wait(run)
    assert [(e.step, e.by) for e in events if isinstance(e, ReviewClosed)] == [(2, "timeout")]
    assert isinstance(events[-1], RunFinished)


def test_relabelled_group_is_trained_again_and_resume_is_identical(
    engine: Engine, project: Path
) -> None:
    settings = {"train.review_every": 3, "train.review_timeout_s": 60}
    run = engine.train(project, **{"train.steps": 3, "train.checkpoint_every": 1, **settings})
    engine.wait_for(run, "review.opened")
    first = "t00001-000-000"
    correction = label(
        (1, 0), score(first, 0.0), Word(kind="gold", trajectory_id=first), effect="again"
    )
    preview = engine.call(lambda client: client.preview_label(run.id, correction))
    assert preview.enters == "the next step"
    send_label(engine, run, correction)
    assert first in (project / "gold.jsonl").read_text()
    engine.call(lambda client: client.command(run.id, Command(action="reviewed")))
    events = engine.wait(run)
    batches = [e for e in events if isinstance(e, BatchClosed)]
    assert [batch.again for batch in batches] == [[], [], [(1, 0)]]
    steps = [e.metrics for e in events if isinstance(e, StepFinished)]
    assert [metrics["groups/again"] for metrics in steps] == [0, 0, 1]
    whole = adapter_bytes(run, 3)
    delete_checkpoints_after(run, 2)
    late = label((3, 0), Word(kind="veto", trajectory_id="t00003-000-000"))
    send_label(engine, run, late)  # added after the step's update: a repeated step must not see it
    engine.call(lambda client: client.command(run.id, Command(action="resume")))
    engine.wait(run)
    assert adapter_bytes(run, 3) == whole
    until(lambda: not is_locked(Path(run.path)))
    assert run_command("label", "undo", run.path).returncode == 0
    done = run_command("label", "undo", run.path)  # gold.jsonl follows
    assert "undone" in done.stdout, done.stderr
    assert not (project / "gold.jsonl").exists()


def adapter_bytes(run: RunSummary, step: int) -> bytes:
    folder = Path(run.path) / "checkpoints" / f"step-{step:06d}" / "adapter"
    return (folder / "adapter_model.safetensors").read_bytes()


def test_label_export_and_import_commands(
    engine: Engine, finished_run: tuple[RunSummary, Path], tmp_path: Path
) -> None:
    run, _ = finished_run
    first, second = "t00001-000-000", "t00001-000-001"
    new_label = label((1, 0), Word(kind="order", order=((first,), (second,))), why="clear")
    send_label(engine, run, new_label)
    out = run_command("label", "export", run.path)
    file = tmp_path / "labels.jsonl"
    file.write_text(out.stdout)
    assert json.loads(out.stdout)["why"] == "clear"
    assert run_command("label", "undo", run.path).returncode == 0
    assert run_command("label", "export", run.path).stdout == ""
    changed = json.loads(out.stdout) | {"id": "another"}
    file.write_text(json.dumps(changed))
    imported = run_command("label", "import", run.path, str(file))
    assert "group 1: order (in effect)" in imported.stdout, imported.stderr
    file.write_text("{}")
    wrong = run_command("label", "import", run.path, str(file))
    assert (wrong.returncode, f"{file}:1" in wrong.stderr) == (2, True)
    people = engine.call(lambda client: client.annotators(run.id))
    printed = json.loads(run_command("label", "annotators", run.path, "--json").stdout)
    assert printed == people.model_dump(mode="json")
    assert people.annotators[0].labels > 0
    assert people.annotators[0].name in run_command("label", "annotators", run.path).stdout
    assert "No judge has scored" in run_command("agreement", run.path).stdout


def test_field_of_all_trajectories_is_a_reward_part_as_previewed(
    engine: Engine, finished_run: tuple[RunSummary, Path]
) -> None:
    run, _ = finished_run
    before = engine.call(lambda client: client.siblings(run.id, "train", 1, 1)).trajectories
    words = [tone(one.id, "kind" if one.index == 0 else "rude") for one in before]
    given = label((1, 1), *words, who="Ann")
    preview = engine.call(lambda client: client.preview_label(run.id, given))
    done = engine.call(lambda client: client.add_label(run.id, given))
    assert done.group.rewards == [one.new_reward for one in preview.outcomes]
    first, second, *_ = done.trajectories
    assert (first.parts["label/tone"], second.parts["label/tone"]) == (1.0, 0.0)
    assert (first.fields, second.fields) == ({"tone": "kind"}, {"tone": "rude"})
    assert first.reward == pytest.approx((before[0].reward or 0) + 0.5)
    exported = run_command("label", "export", run.path).stdout
    assert json.loads(exported.splitlines()[-1])["words"][0]["name"] == "tone"
    undone = engine.call(lambda client: client.undo_label(run.id))
    assert [one.reward for one in undone.trajectories] == [one.reward for one in before]
    assert undone.trajectories[0].fields == {}


def test_review_queue_over_http_and_on_the_command_line(
    engine: Engine, finished_run: tuple[RunSummary, Path]
) -> None:
    run, _ = finished_run
    queue = engine.call(lambda client: client.review_queue(run.id, ReviewQuery(limit=1)))
    printed = json.loads(run_command("label", "queue", run.path, "--limit", "1", "--json").stdout)
    assert printed == queue.model_dump(mode="json")
    assert len(queue.items) == min(1, queue.total)
    table = run_command("label", "queue", run.path, "--reason", "advantage").stdout
    assert ("Advantages reach" if queue.total else "No group is left") in table
    wrong = run_command("label", "queue", run.path, "--reason", "mood")
    assert (wrong.returncode, [one for one in REASONS if one not in wrong.stderr]) == (2, [])
