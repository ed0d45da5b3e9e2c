"""Images in what judges and demonstration files get of a trajectory."""

import json

import pytest

from engine.judge.prompting.transcript import lines_of, openai_messages, part_of
from engine.protocol.records.conversations import IMAGE, Message
from engine.protocol.records.runs import Trajectory
from engine.training.labels.gold import line_of
from engine.training.sft.formats import read_line

MESSAGES = [
    Message(role="user", content=f"Compare {IMAGE} and {IMAGE}.", images=["a", "b"]),
    Message(role="assistant", content="They differ."),
    Message(role="tool", content=f"{IMAGE}{IMAGE} done", images=["b", "c"], tool_call_id="c1"),
    Message(role="user", content=f"A sign {IMAGE} of its own"),
]
TRAJECTORY = Trajectory(
    id="t", split="train", step=1, group=0, index=0, scenario_id="s", title="", messages=MESSAGES,
    reward=1.0,
)  # fmt: skip


def test_judge_reads_numbered_marks() -> None:
    lines = lines_of(part_of(TRAJECTORY), 10_000)
    assert "Compare [image 1] and [image 2]." in lines
    assert "[image 2][image 3] done" in lines
    rest = part_of(TRAJECTORY, 2)
    assert rest.messages[0].content == "[image 2][image 3] done"
    assert not rest.messages[0].images
    assert rest.messages[1].content == f"A sign {IMAGE} of its own", "no image: it was typed"
    assert rest.messages[1] == MESSAGES[3]


def test_gold_line_with_images_is_refused_as_a_demonstration() -> None:
    first = openai_messages(TRAJECTORY)[0]
    kinds = [part["type"] for part in first["content"]]
    assert kinds == ["text", "image", "text", "image", "text"]
    assert "images" not in first
    line = line_of("run/", TRAJECTORY)
    assert json.loads(line)["messages"][1] == {"role": "assistant", "content": "They differ."}
    with pytest.raises(ValueError, match="contains an image"):
        read_line(line.encode())
