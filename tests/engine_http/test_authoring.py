"""Authoring of projects from a description, over a real engine and a scripted, misbehaving
provider.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.events.run import RunFinished, StepFinished
from engine.protocol.problems import Refused
from engine.protocol.requests.drafts import DescribeTask, DraftTicked, FinishProject, Writer
from engine.protocol.requests.runs import StartRun
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import Engine
from tests.support.engine_starter import run_command

pytestmark = pytest.mark.usefixtures("real_cache")
PLAN = {"title": "Polite answers", "system_prompt": "Be polite.", "rubric": "- politeness\n"}
TASK = "A customer writes a short message; the model answers it politely in one sentence."
PRICE = {"price_prompt": 10.0, "price_completion": 20.0}


class DraftWriter:
    """Provider that writes the plan, then distinct scenarios; one mood is used up per question."""

    def __init__(self, *moods: str) -> None:
        self.moods = list(moods)
        self.count = 0
        self.questions: list[str] = []

    def __call__(self, messages: list[dict[str, str]]) -> str:
        question = messages[1]["content"]
        self.questions.append(messages[-1]["content"])
        mood = self.moods.pop(0) if self.moods else "good"
        if mood == "refuses":
            return "I am sorry, I cannot help with that."
        if mood == "garbage":
            return '{"scenarios": [{"input": "cut o'
        if '"system_prompt"' in question:
            return json.dumps(PLAN)
        count = int(question.split("Write ")[1].split(" ")[0])
        count += {"too few": -2, "too many": 3}.get(mood, 0)
        entries: list[Any] = [self._entry() for _ in range(count)]
        if mood == "repeats":
            entries = ["The same once more, word for word?"] * count
        return json.dumps({"scenarios": entries})

    def _entry(self) -> dict[str, Any]:
        self.count += 1
        words = " ".join(f"w{self.count * 7 + place}" for place in range(6))
        return {"input": f"{words}?", "difficulty": 1 + self.count % 5}


@pytest.fixture
def script() -> Iterator[Script]:
    with provider(Script(grade=lambda place, text: (sum(map(ord, text)) % 7) / 6)) as script:
        yield script


def describe_request(folder: Path, script: Script, **changes: Any) -> DescribeTask:
    writer = Writer(model="openai/scripted", base_url=script.url, **PRICE)
    values = {"folder": str(folder), "description": TASK, "writer": writer, "count": 30}
    return DescribeTask(**{**values, **changes})


def generate_draft(engine: Engine, request: DescribeTask) -> list[DraftTicked]:
    async def collect(client: Any) -> list[DraftTicked]:
        return [one async for one in client.write_draft(request)]

    return engine.call(collect)


def test_description_becomes_a_project_that_trains(
    engine: Engine, workspace: Path, tiny_model: Path, script: Script
) -> None:
    script.writes = DraftWriter("good", "good", "refuses", "good", "repeats", "too many", "garbage")
    request = describe_request(workspace / "polite", script)
    ticks = generate_draft(engine, request)
    last = ticks[-1]
    assert (last.ended, last.problem) == (True, None)
    assert (last.draft.title, last.draft.system) == ("Polite answers", "Be polite.")
    assert len(last.draft.scenarios) == 30
    assert len({one.input for one in last.draft.scenarios}) == 30
    assert {one.difficulty for one in last.draft.scenarios} >= {1, 2, 3, 4, 5}
    assert sum(one.split == "validation" for one in last.draft.scenarios) == 6
    assert last.left_out["too similar to another"] >= 1
    spent = [one.spent_usd for one in ticks]
    assert spent == sorted(spent)
    assert all(one.next_usd > 0 for one in ticks[:-1])
    assert last.spent_usd == pytest.approx(len(script.asked) * (100 * 10 + 50 * 20) / 1e6)
    assert "could not be used" in script.asked[3]["messages"][-1]["content"]

    questions = len(script.asked)
    assert generate_draft(engine, request)[-1].draft == last.draft
    assert len(script.asked) == questions, "answered questions are not repeated"

    view = engine.call(
        lambda client: client.finish_project(
            FinishProject(
                folder=request.folder, description=TASK, draft=last.draft,
                learner=str(tiny_model), judge=request.writer,
            )
        )
    )  # fmt: skip
    assert (view.name, view.problems) == ("Polite answers", [])
    assert [(split.split, split.count) for split in view.splits] == [
        ("train", 24), ("validation", 6),
    ]  # fmt: skip
    assert (Path(view.path) / "rubric.md").read_text() == "- politeness\n"
    small = {
        "train.steps": 2, "train.groups": 2, "train.group_size": 4, "train.max_tokens": 12,
        "model.max_context": 400, "model.dtype": "float32", "judge.passes": 1,
        "train.validation_attempts": 2, "judge.canary_every": 0,
    }  # fmt: skip
    start = StartRun(project=view.path, kind="baseline", overrides=small)
    events = engine.wait(engine.call(lambda client: client.start_run(start)))
    assert isinstance(events[-1], RunFinished), events[-1]
    events = engine.wait(engine.train(Path(view.path), **small))
    assert isinstance(events[-1], RunFinished), events[-1]
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert len(steps) == 2
    assert all("reward/part/ruler" in step.metrics for step in steps)


@pytest.mark.parametrize(
    ("moods", "code"),
    [
        (("refuses", "refuses"), "authoring.useless"),
        (("good", *["refuses"] * 6), "authoring.dried_up"),
        (("good", "good", *["repeats"] * 4), "authoring.dried_up"),
    ],
)
def test_useless_writer_ends_draft_with_problem(
    engine: Engine, workspace: Path, script: Script, moods: tuple[str, ...], code: str
) -> None:
    script.writes = DraftWriter(*moods)
    last = generate_draft(engine, describe_request(workspace / "refused", script))[-1]
    assert last.problem is not None
    assert (last.ended, last.problem.code) == (True, code)
    request = FinishProject(
        folder=str(workspace / "refused"), draft=last.draft, judge=Writer(model="openai/scripted")
    )
    if len(last.draft.scenarios) < 8:
        with pytest.raises(Refused, match="draft has"):
            engine.call(lambda client: client.finish_project(request))


def test_draft_stays_within_budget_and_can_be_extended(
    engine: Engine, workspace: Path, script: Script
) -> None:
    script.writes = DraftWriter()
    writer = Writer(model="openai/scripted", base_url=script.url, budget_usd=0.1, **PRICE)
    request = describe_request(workspace / "dear", script, writer=writer, count=400)
    last = generate_draft(engine, request)[-1]
    assert last.problem is not None
    assert last.problem.code == "authoring.budget"
    assert 12 <= len(last.draft.scenarios) < 400
    assert last.spent_usd <= 0.1
    more = writer.model_copy(update={"budget_usd": 5.0})
    assert (
        len(
            generate_draft(
                engine, describe_request(workspace / "dear", script, writer=more, count=100)
            )[-1].draft.scenarios
        )
        == 100
    )


def test_folder_with_other_files_is_rejected(
    engine: Engine, workspace: Path, script: Script
) -> None:
    (workspace / "mine").mkdir()
    (workspace / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(Refused, match="not empty"):
        generate_draft(engine, describe_request(workspace / "mine", script))
    assert [file.name for file in (workspace / "mine").iterdir()] == ["notes.txt"]


def test_finished_project_is_not_overwritten(
    engine: Engine, workspace: Path, script: Script, tiny_model: Path
) -> None:
    script.writes = DraftWriter()
    folder = workspace / "mine"
    request = describe_request(folder, script, count=20)
    draft = generate_draft(engine, request)[-1].draft
    done = FinishProject(
        folder=str(folder), draft=draft, learner=str(tiny_model), judge=request.writer
    )
    engine.call(lambda client: client.finish_project(done))
    (folder / "rubric.md").write_text("My own words.\n")
    with pytest.raises(Refused, match="finished"):
        generate_draft(engine, request)
    with pytest.raises(Refused, match="finished"):
        engine.call(lambda client: client.finish_project(done))
    assert (folder / "rubric.md").read_text() == "My own words.\n"


def test_new_stops_at_budget_and_accepts_partial_draft(
    workspace: Path, script: Script, tiny_model: Path
) -> None:
    script.writes = DraftWriter()
    folder = workspace / "short"
    command = ["new", str(folder), "--describe", TASK]
    command += ["--model", "openai/scripted", "--base-url", script.url, "--count", "60"]
    command += ["--learner", str(tiny_model), "--price", "10", "20"]

    def run_new(*more: str) -> tuple[int, str]:
        done = run_command(*command, *more)
        return done.returncode, done.stdout

    code, output = run_new("--budget", "0.1")
    assert code == 1
    assert "of 60 scenarios are written" in output
    assert not (folder / "rubric.md").exists()
    questions = len(script.asked)
    code, output = run_new("--enough")
    assert (code, len(script.asked)) == (0, questions)
    assert "Polite answers: 19 training scenarios" in output
    assert (folder / "rubric.md").exists()
    assert run_new("--budget", "5")[0] == 2


def test_new_writes_whole_project_from_command_line(
    workspace: Path, script: Script, tiny_model: Path
) -> None:
    script.writes = DraftWriter("good", "too few")
    folder = workspace / "typed"
    command = ["new", str(folder), "--describe", TASK]
    command += ["--model", "openai/scripted", "--base-url", script.url, "--count", "20"]
    command += ["--learner", str(tiny_model), "--price", "10", "20"]
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    assert "16 training scenarios, 4 for validation" in done.stdout
    assert len((folder / "scenarios" / "train.jsonl").read_text().splitlines()) == 16
    config = (folder / "project.toml").read_text()
    assert "openai/scripted" in config
    done = run_command(*command[:3], "short")
    assert done.returncode == 2
