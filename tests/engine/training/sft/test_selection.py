"""Selection of trajectories as demonstrations, and the reasons for exclusion."""

import json
from pathlib import Path

import pytest

from engine.protocol.problems import ConfigError, Problem
from engine.protocol.records.demonstrations import SelectDemonstrations
from engine.protocol.records.runs import RunKind, Split, TrajectorySummary
from engine.storage.run_folder.run import DATABASE, write_spec
from engine.training.sft.selection import Rule, choose, demonstrate, read_rule
from tests.engine.storage.kept_runs import make_run
from tests.engine.storage.run_db.test_store import trajectory, write


def summary(name: str, scenario: str, reward: float | None, **more: object) -> TrajectorySummary:
    defaults = {"split": "train", "step": 1, "group": 0, "index": 0, "title": scenario, "turns": 1}
    return TrajectorySummary.model_validate(
        {"id": name, "scenario_id": scenario, "reward": reward, **defaults, **more}
    )


SUMMARIES = [
    summary("a", "s1", 0.4),
    summary("b", "s1", 0.9),
    summary("c", "s1", 0.9),
    summary("d", "s2", 0.2),
    summary("e", "s2", 1.0, truncated=True),
    summary("f", "s3", None, problem=Problem(code="agent.timeout", message="…")),
    summary("g", "s3", None, awaits_judge=True),
    summary("h", "s3", 1.0, turns=0),
]


@pytest.mark.parametrize(
    ("rule", "kept_ids", "reasons"),
    [
        ("best", "bd", {"not the best of its scenario": 2}),
        ("best:0.5", "b", {"not the best of its scenario": 1, "reward below 0.5": 2}),
        ("all", "abcd", {}),
        ("above:0.9", "bc", {"reward below 0.9": 2}),
        ("above:2", "", {"reward below 2": 4}),
    ],
)
def test_selection_rule_keeps_trajectories_and_counts_reasons(
    rule: str, kept_ids: str, reasons: dict[str, int]
) -> None:
    selected, left_out = choose(SUMMARIES, read_rule(rule))
    assert "".join(one.id for one in selected) == kept_ids
    never = {
        "cut off by a token limit": 1,
        "unscored: agent.timeout": 1,
        "unscored: not judged yet": 1,
        "no response of the model": 1,
    }
    assert left_out == {**reasons, **never}
    assert len(selected) + sum(left_out.values()) == len(SUMMARIES), (
        "every trajectory should be counted"
    )


@pytest.mark.parametrize("text", ["", "some", "above", "all:0.5", "best:", "above:x", "best:1:2"])
def test_invalid_selection_rule_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a selection rule"):
        read_rule(text)


def test_best_rule_handles_negative_rewards() -> None:
    summaries = [summary("a", "s", -0.5), summary("b", "s", -0.1)]
    selected, _ = choose(summaries, Rule("best"))
    assert [one.id for one in selected] == ["b"]
    assert read_rule("above:-0.2") == Rule("all", -0.2)


@pytest.mark.parametrize(
    ("kind", "split", "kept_ids"),
    [
        ("train", None, ["s1"]),
        ("outside", None, ["s1"]),
        ("train", "validation", ["v1"]),
        ("evaluation", None, ["s1", "v1"]),
        ("imported", None, ["s1", "v1"]),
    ],
)
def test_validation_trajectories_of_training_runs_are_excluded(
    tmp_path: Path, kind: RunKind, split: Split | None, kept_ids: list[str]
) -> None:
    spec = make_run(tmp_path, "one", {}).model_copy(update={"kind": kind})
    folder = tmp_path / "runs" / spec.id
    write_spec(folder, spec)
    write(
        folder / DATABASE,
        trajectory(1).model_copy(update={"id": "a", "scenario_id": "s1"}),
        trajectory(1).model_copy(update={"id": "b", "scenario_id": "v1", "split": "validation"}),
    )
    selected = demonstrate(folder, SelectDemonstrations(keep="all", split=split))
    lines = (tmp_path / "demonstrations.jsonl").read_text().splitlines()
    assert [json.loads(line)["source"]["scenario"] for line in lines] == kept_ids
    assert (selected.kept, selected.of) == (len(kept_ids), len(kept_ids))
