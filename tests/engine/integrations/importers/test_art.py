"""Import of files written by ART's own writer: trajectories, rewards, steps and splits."""

import shutil
from pathlib import Path

import pytest

from engine.integrations.importers.art import find_art_model, open_art
from engine.protocol.problems import ConfigError
from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import Trajectory
from tests.engine.integrations.importers.art_writer import CALL, TOOL


def read(folder: Path) -> dict[tuple[str, int], list[list[Trajectory]]]:
    return {(lot.split, lot.step): lot.groups for lot in open_art(folder).lots()}


def test_version_1_is_read_completely(art: Path) -> None:
    first, second = read(art)["train", 0]  # a group whose rollouts all raised has no rows
    best, low, lost = first
    assert best.messages == [
        Message(role="user", content="What is above?"),
        Message(role="assistant", tool_calls=[CALL]),
        Message(role="tool", content="blue ✓", tool_call_id="c1"),
        Message(role="assistant", content="It is blue."),
    ]
    assert (best.id, best.reward, best.parts, best.turns) == ("t00000-000-000", 1, {"reward": 1}, 2)
    assert best.metrics == {"correct": 1, "duration": 2.5, "group_spread": 0.75}
    assert (best.tools, best.duration_s, best.scenario_id) == ([TOOL], 2.5, "sky")
    assert "level: 3\nlooked up\ngroup: three tries" in best.output
    assert (low.reward, low.index, low.scenario_id) == (0.25, 1, "sky")
    assert (lost.reward, lost.parts) == (None, {})
    assert lost.problem is not None
    assert lost.problem.code == "judge.unrewarded"
    assert [(t.title, t.group, t.reward) for t in second] == [("Und grün?", 1, 1.0)]
    assert [lot.dropped for lot in open_art(art).lots()] == [1, 0, 0, 0, 0]


def test_steps_and_splits_are_kept(art: Path) -> None:
    lots = read(art)
    assert list(lots) == [("train", 0), ("validation", 0), *(("train", n) for n in (1, 2, 3))]
    validation, test_group = lots["validation", 0]
    assert (validation[0].id, test_group[0].id) == ("v00000-000-000", "v00000-001-000")
    scenario = lots["train", 1][0][0].scenario_id
    assert scenario == validation[0].scenario_id  # equal prompts are one scenario
    assert test_group[0].scenario_id == f"test/{scenario}"


@pytest.mark.parametrize("step", [2, 3])
def test_json_lines_and_migrated_parquet_read_the_same(art: Path, step: int) -> None:
    (best,), (other,) = read(art)["train", step]
    assert (best.reward, best.messages[-1].content, other.reward) == (0.5, "and on", 1.0)
    assert best.output == "Conversation 2 of this rollout:\nuser: aside\nassistant: whisper"
    assert best.truncated == (step == 2)  # version 1 has no finish reason


def test_migrated_file_is_not_read_twice(art: Path) -> None:
    assert open_art(art).notes == ("train/0003.jsonl was skipped: 0003.parquet has the same step.",)


def test_model_is_found_from_parent_folders(art: Path, tmp_path: Path) -> None:
    home = art / "shop" / "models" / "agent-001"
    for folder in (art.parent, art, art / "shop", home.parent, home):
        assert find_art_model(folder) == home
    copy = tmp_path / ".art"
    for name in ("a", "b"):
        shutil.copytree(home, copy / "shop" / "models" / name)
    assert find_art_model(copy, "b").name == "b"
    with pytest.raises(ConfigError, match="2 models: shop/models/a, shop/models/b"):
        find_art_model(copy)
    with pytest.raises(ConfigError, match="This folder has no model c"):
        find_art_model(copy, "c")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no ART trajectories"):
        find_art_model(tmp_path / "empty")


def test_links_out_of_the_folder_are_skipped(art: Path) -> None:
    home = find_art_model(art)
    outside_file = art.parent / "elsewhere.jsonl"
    outside_file.write_text('{"secret": true}\n')
    (home / "trajectories" / "train" / "0099.jsonl").symlink_to(outside_file)
    source = open_art(art)
    assert ("train", 99) not in {(lot.split, lot.step) for lot in source.lots()}
    assert any("a link to another folder" in note for note in source.notes)
