"""Demonstration files: the held-out split, rejected lines, and the copy that a run stores."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import changed_config
from engine.protocol.problems import ConfigError, StoreError
from engine.rollout.rendering.chat import ChatFormat
from engine.training.sft.data import (
    TRAIN,
    collect,
    plan_of,
    refusal,
    refuse,
    split,
    store_examples,
    stored_examples,
)


@pytest.fixture
def chat(tiny_model: Path) -> Iterator[ChatFormat]:
    with ChatFormat(tiny_model) as chat:
        yield chat


def line(prompt: str, completion: str) -> str:
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
    return json.dumps({"messages": messages}) + "\n"


def write(project: Path, name: str, prompts: int, completions: int = 1, first: int = 0) -> None:
    text = [
        line(f"Q{q}", f"A{a}") for q in range(first, first + prompts) for a in range(completions)
    ]
    (project / name).write_text("".join(text))


def test_completions_of_one_prompt_are_held_out_together(tmp_path: Path, chat: ChatFormat) -> None:
    write(tmp_path, "demonstrations.jsonl", 20, 3)
    config = ProjectConfig()
    data = collect(tmp_path, config, chat)
    assert (len(data.train), len(data.held_out)) == (54, 6)
    assert not {e.beginning for e in data.train} & {e.beginning for e in data.held_out}
    assert collect(tmp_path, config, chat) == data, "the split should follow from the seed"
    other = collect(tmp_path, changed_config(config, {"train.seed": 1}), chat)
    assert other.held_out != data.held_out
    none = collect(tmp_path, changed_config(config, {"sft.held_out": 0.0}), chat)
    assert (len(none.train), none.held_out) == (60, [])
    assert split(data.train[:1], 0.5, 0) == (data.train[:1], []), (
        "a single prompt should be trained on"
    )


def test_gold_is_trained_and_validation_file_is_only_measured(
    tmp_path: Path, chat: ChatFormat
) -> None:
    write(tmp_path, "demonstrations.jsonl", 4)
    write(tmp_path, "gold.jsonl", 2, first=4)
    write(tmp_path, "held.jsonl", 3, first=6)
    config = changed_config(ProjectConfig(), {"sft.validation": "held.jsonl"})
    data = collect(tmp_path, config, chat)
    assert [file.role for file in data.files] == ["train", "gold", "validation"]
    assert (len(data.train), len(data.held_out)) == (6, 3)
    plan = plan_of(changed_config(config, {"sft.epochs": 2, "sft.batch_size": 4}), data)
    assert (plan.updates, plan.train.examples, plan.held_out.examples) == (4, 6, 3)
    assert plan.train.trained == 6 * len("A0") + 6, "each should include its end token"
    without_gold = collect(tmp_path, changed_config(config, {"sft.gold": False}), chat)
    assert len(without_gold.train) == 4


def test_bad_lines_are_named_and_counted(tmp_path: Path, chat: ChatFormat) -> None:
    good_line = line("Q", "A")
    (tmp_path / "demonstrations.jsonl").write_text(
        good_line + "x\n" + good_line + "[]\n{}\n3\n\n" + good_line
    )
    data = collect(tmp_path, ProjectConfig(), chat)
    (file,) = data.files
    assert (file.lines, file.bad_count, [one.line for one in file.bad]) == (7, 4, [2, 4, 5, 6])
    problem = refusal(data.files, skip=False)
    assert problem is not None
    assert problem.message.startswith(
        "4 of the 7 lines of demonstrations.jsonl cannot be used for training"
    )
    assert problem.message.endswith("1 more.")
    assert problem.where == "demonstrations.jsonl, line 2"
    assert refusal(data.files, skip=True) is None
    with pytest.raises(ConfigError, match="line 2"):
        refuse(tmp_path, ProjectConfig(), data)
    skipping = changed_config(ProjectConfig(), {"sft.skip_bad_lines": True})
    refuse(tmp_path, skipping, data)
    assert plan_of(skipping, data).skipped == 4


def test_run_stores_the_exact_examples(tmp_path: Path, chat: ChatFormat) -> None:
    content = b"\xef\xbb\xbf" + (line("Q1", "A ✓") + line("Q2", "B")).replace("\n", "\r\n").encode()
    (tmp_path / "demonstrations.jsonl").write_bytes(content)
    data = collect(tmp_path, ProjectConfig(), chat)
    store_examples(tmp_path, data)
    train_examples, held_out = stored_examples(tmp_path, chat, 1024)
    assert [e.items for e in train_examples] == [e.items for e in data.train]
    assert [e.items for e in held_out] == [e.items for e in data.held_out]
    (tmp_path / TRAIN).write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        stored_examples(tmp_path, chat, 1024)
