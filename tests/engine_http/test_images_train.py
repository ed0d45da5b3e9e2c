"""A model that reads images is trained: real engine, sampler and trainer, images sent as PNG."""

from pathlib import Path
from typing import Any

import pytest

from engine.client import EngineClient
from engine.protocol.events.run import StepFinished
from engine.protocol.problems import AtelierError
from engine.protocol.records.conversations import IMAGE
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.exports import ExportCheckpoint, ExportReport
from engine.protocol.requests.runs import TrajectoryQuery
from tests.engine_http.conftest import Engine, make_project
from tests.engine_http.test_export import export_checkpoint
from tests.support.seeing import PLACEHOLDER, save_model, save_processor

AGENT = """
import base64
import struct
import zlib

import openai


def png(level, width, height):
    def chunk(kind, data):
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = (b"\\\\0" + bytes([level] * width)) * height
    file = b"\\\\x89PNG\\\\r\\\\n\\\\x1a\\\\n" + chunk(b"IHDR", head)
    file += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(file).decode()


async def rollout(scenario, model):
    client = openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key)
    light = int(scenario["id"][1:]) % 2 == 0
    messages, right = [], 0
    for turn in range(2):
        level = 230 if light != (turn == 1) else 20
        image = {"type": "image_url", "image_url": {"url": png(level, 24, 16 + 8 * turn)}}
        messages.append(
            {"role": "user", "content": [{"type": "text", "text": "Light?"}, image]}
        )
        answer = await client.chat.completions.create(
            model=model.name, messages=messages,
            extra_body={"structured_outputs": {"choice": ["yes", "no"]}},
        )
        text = answer.choices[0].message.content
        messages.append({"role": "assistant", "content": text})
        right += text == ("yes" if level > 128 else "no")
    return {"reward": right / 2}
""".replace("\\\\", "\\")


def check_export(engine: Engine, run: RunSummary, out: Path) -> None:
    """Merged weights are verified against the trained model, and have all that it needs."""
    *_, report = export_checkpoint(
        engine, run, ExportCheckpoint(format="merged", out=str(out), prompts=4)
    )
    assert isinstance(report, ExportReport)
    assert report.parity.verdict == "equal", report.parity.failures
    assert [one.tool for one in report.commands] == ["Atelier", "vLLM"]
    assert "AutoModelForImageTextToText" in (out / "README.md").read_text()
    assert (out / "preprocessor_config.json").is_file()
    assert not (out / "Modelfile").exists()
    gguf = ExportCheckpoint(format="gguf", out=str(out.with_name("gguf")), prompts=4)
    with pytest.raises(AtelierError, match="not exported as GGUF"):
        export_checkpoint(engine, run, gguf)


@pytest.mark.parametrize(("kind", "count"), [("qwen2_5_vl", 9), ("qwen3_5", 1)])
def test_images_are_trained_exactly(
    engine: Engine, workspace: Path, tmp_path: Path, kind: str, count: int
) -> None:
    """Two turns with an image each: the sampler's log-probs equal the trainer's, each image is
    stored once, and within 9 steps the agent tells light from dark."""
    save_processor(save_model(kind, tmp_path / "model"))
    project = make_project(workspace / "light", tmp_path / "model", AGENT)
    run = engine.train(
        project,
        **{
            "model.max_context": 512, "train.steps": count, "train.lr": 3e-3,
            "train.validate_every": 0, "train.groups": 4, "train.group_size": 4,
        },
    )  # fmt: skip
    events = engine.wait(run, 200)

    async def read(client: EngineClient) -> list[Any]:
        page = await client.trajectories(run.id, TrajectoryQuery(split="train"))
        return [await client.trajectory(run.id, one.id) for one in page.items]

    trajectories = engine.call(read)
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert len(steps) == count, (events[-1], trajectories[0].problem)
    for step in steps:
        assert step.metrics["logprob_gap/max"] <= 1e-4
    rewards = [step.metrics["reward/mean"] for step in steps]
    print(kind, [round(reward, 2) for reward in rewards])
    assert count < 9 or rewards[0] < 0.6 < 0.75 < sum(rewards[-3:]) / 3
    for one in trajectories:
        (branch,) = one.branches
        assert len(branch.spans) == 2
        first, second = branch.images
        assert branch.tokens[first.start : first.start + first.count] == [PLACEHOLDER] * first.count
        assert (first.count, second.count) == (6, 9)
        shown = [message for message in one.messages if message.role == "user"]
        assert [message.content for message in shown] == [f"Light?{IMAGE}"] * 2
        assert [message.images for message in shown] == [[first.id], [second.id]]
    stored = list((Path(run.path) / "images").glob("*.png"))
    assert len(stored) == 4
    if kind == "qwen2_5_vl":
        check_export(engine, run, tmp_path / "out")
    assert not list((Path(run.path) / "images").glob("inputs/*"))
