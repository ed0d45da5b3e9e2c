"""Import of version 2 of ART's files: JSON with exceptions and captured calls."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.environments import python_of
from engine.integrations.importers.art import open_art_file
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import Trajectory

WRITER = Path(__file__).with_name("envelope_writer.py")
LOGPROBS = {"content": [{"token": "y", "logprob": -0.1}, {"token": "e", "logprob": -0.2}]}
PROMPT = {"role": "user", "content": "Is it?"}


def reply(text: str, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "tool_calls": None}
    return {"finish_reason": "stop", "index": 0, "message": message, "logprobs": None, **more}


def write_file(file: Path, groups: list[Any], version: str = "2") -> Path:
    command = [str(python_of("parquet")), str(WRITER), str(file), version]
    subprocess.run(command, input=json.dumps(groups), text=True, check=True)
    return file


def read(file: Path) -> list[list[Trajectory]]:
    return [group for lot in open_art_file(file).lots() for group in lot.groups]


def test_exceptions_become_unscored_trajectories(tmp_path: Path) -> None:
    error = {"type": "<class 'app.Fallen'>", "message": "over", "traceback": "line 1"}
    trajectory = {
        "messages_and_choices": [PROMPT, reply("ye", finish_reason="length", logprobs=LOGPROBS)],
        "reward": 0.5,
        "metrics": {"n": 2},
        "final_policy_version": 4,
        "initial_policy_version": 3,
        "additional_histories": [{"messages_and_choices": [PROMPT, reply("aside")]}],
    }
    groups = [[{"exceptions": [error], "metadata": {"scenario_id": "x"}}, [trajectory]], [{}, []]]
    ((one, failed),) = read(write_file(tmp_path / "0007.parquet", groups))
    assert (one.id, one.reward, one.metrics) == ("t00007-000-000", 0.5, {"n": 2})
    assert (one.truncated, one.policy_version, one.scenario_id) == (True, 3, "x")
    assert one.sampled_tokens == 2
    assert "aside" in one.output
    assert (failed.reward, failed.index, failed.title) == (None, 1, "Is it?")
    assert failed.scenario_id == "x"
    assert failed.problem is not None
    assert failed.problem.message == "The agent raised Fallen: over"
    assert failed.problem.detail == "line 1"


def chat(end: str, *messages: Any, answer: str) -> dict[str, Any]:
    request = {"messages": list(messages), "tools": [{"type": "function"}]}
    return {
        "request": request,
        "response": {"choices": [reply(answer, logprobs=LOGPROBS)]},
        "end_time": end,
    }


def test_captured_calls_become_conversations(tmp_path: Path) -> None:
    """A call that is a prefix of another is merged into it; others are shown in the output."""
    before = [PROMPT, {"role": "assistant", "content": "Maybe"}, {"role": "user", "content": "So?"}]
    exchanges = {
        "chat_completions": [
            chat("3", *before, answer="Yes"),
            chat("1", PROMPT, answer="Maybe"),
            chat("2", {"role": "user", "content": "Sum up"}, answer="Unsure"),
        ]
    }
    ((one,),) = read(
        write_file(tmp_path / "a.parquet", [[{}, [{"exchanges": exchanges, "reward": 1}]]])
    )
    assert [message.content for message in one.messages] == ["Is it?", "Maybe", "So?", "Yes"]
    assert (one.turns, one.sampled_tokens) == (2, 6)
    assert one.tools == [{"type": "function"}]
    assert "user: Sum up" in one.output
    assert "Maybe" not in one.output


@pytest.mark.parametrize(
    ("trajectory", "words"),
    [
        ({"messages_and_choices": [PROMPT]}, "reward"),
        ({"messages_and_choices": ["hm"], "reward": 1}, "attribute"),
        ({"reward": 1, "metrics": {"n": "many"}}, "the metric n is not a number: 'many'"),
        ({"reward": 1, "exchanges": {"responses": [{}]}}, "with the responses API"),
    ],
)
def test_invalid_row_is_reported_with_its_number(
    tmp_path: Path, trajectory: Any, words: str
) -> None:
    valid = {"messages_and_choices": [PROMPT], "reward": 1}
    file = write_file(tmp_path / "a.parquet", [[{}, [valid, trajectory]]])
    with pytest.raises(ConfigError) as error:
        read(file)
    assert error.value.problem.where == f"{file}, row 2"
    assert words in error.value.problem.detail


def test_invalid_or_newer_parquet_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("PAR1")
    with pytest.raises(ConfigError, match="cannot be read as Parquet"):
        read(tmp_path / "a.parquet")
    valid = {"messages_and_choices": [PROMPT], "reward": 1}
    with pytest.raises(ConfigError, match="version 3 of ART's format"):
        read(write_file(tmp_path / "b.parquet", [[{}, [valid]]], version="3"))
