"""Samples: two training steps of a tiny model, in the sample's own environment, with fewer
scenarios and demonstrations."""

import json
import shutil
from pathlib import Path

import pytest

from engine.environments import python_of
from engine.environments.bootstrap import OF_AGENT
from engine.protocol.events.run import RunFinished, StepFinished
from engine.protocol.requests.runs import TrajectoryQuery
from engine.storage.project import load_config
from engine.storage.samples import create_project, samples
from tests.engine_http.conftest import Engine
from tests.support.namespaces import needs_namespaces

pytestmark = pytest.mark.usefixtures("real_cache")
SMALL = {
    "model.dtype": "float32", "model.rank": 4, "model.max_context": 2000, "agent.concurrency": 8,
    "train.steps": 2, "train.groups": 2, "train.group_size": 3, "train.max_tokens": 24,
    "train.validate_every": 0, "train.validation_attempts": 1,
}  # fmt: skip
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Chat template with tool calls, like those of models that support them."""
SANDBOXED = {"fix_the_bug"}
"""Samples whose agents run in a sandbox."""
ROWS = {"scenarios/train.jsonl": 6, "scenarios/validation.jsonl": 2, "demonstrations.jsonl": 4,
        "demonstrations/level-1.jsonl": 4}  # fmt: skip


@pytest.fixture(scope="module")
def tool_calling_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny model with a template for tool calls."""
    folder = tmp_path_factory.mktemp("caller") / "tiny"
    shutil.copytree(tiny_model, folder)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": TEMPLATE}))
    return folder


def keep_first_lines(file: Path, rows: int) -> None:
    if file.exists():
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(lines[:rows]), encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(sample.name, marks=needs_namespaces if sample.name in SANDBOXED else ())
        for sample in samples()
    ],
)
def test_sample_trains(
    engine: Engine, workspace: Path, tool_calling_model: Path, name: str
) -> None:
    project = workspace / name
    create_project(project, name)
    for file, rows in ROWS.items():
        keep_first_lines(project / file, rows)
    config = load_config(project)
    if config.agent.requirements:
        python_of(f"{OF_AGENT}{project / config.agent.requirements}")
    small = {**SMALL, "model.name": str(tool_calling_model)}
    if config.train.warmup:
        small |= {"train.warmup.epochs": 1}
    run = engine.train(project, **small)
    events = engine.wait(run, 240)
    assert isinstance(events[-1], RunFinished), events[-1]
    assert len([event for event in events if isinstance(event, StepFinished)]) == 2
    page = engine.call(lambda client: client.trajectories(run.id, TrajectoryQuery()))
    assert page.total == 2 * 2 * 3 + 2 * 2
    assert [one.problem for one in page.items if one.problem] == []
