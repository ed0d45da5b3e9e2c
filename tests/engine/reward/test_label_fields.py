"""Custom label fields as reward parts and metrics."""

from typing import Any

import pytest

from engine.protocol.config.algorithm import GroupMean
from engine.protocol.config.project import Constraint, ProjectConfig
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import Trajectory
from engine.reward.labels import apply_labels, without_labels
from engine.training.step.metrics import rewards
from tests.engine.reward.test_labels import JUDGED, NO_PAIRS, judged_group, label, word

FIELDS = {
    "tone": {"kind": "choice", "choices": ["rude", "neutral", "kind"]},
    "steps": {"kind": "number", "low": 0, "high": 10},
    "why": {"kind": "text"},
}


def config(weights: dict[str, float], **fields: Any) -> ProjectConfig:
    values = JUDGED.model_dump() | {"labels": {"fields": FIELDS}}
    return ProjectConfig.model_validate(values | {"reward": {"weights": weights, **fields}})


def field(index: int, name: str, value: float | str) -> Word:
    given = {"text": value} if isinstance(value, str) else {"value": value}
    return word("field", index, name=name, **given)


def apply(settings: ProjectConfig, *labels: Label) -> list[Trajectory]:
    return apply_labels(settings, judged_group(0.2, 0.6), labels, NO_PAIRS)


TONES = (field(0, "tone", "kind"), field(1, "tone", "rude"))


@pytest.mark.parametrize("weight", ["tone", "label/tone"])
def test_weighted_field_is_a_part_once_all_have_a_value(weight: str) -> None:
    settings = config({weight: 0.5})
    half = apply(settings, label(TONES[0]))
    assert [one.reward for one in half] == [0.2, 0.6]
    assert half[0].fields == {"tone": "kind"}
    both = apply(settings, label(TONES[0]), label(TONES[1]))
    assert [one.parts["label/tone"] for one in both] == [1.0, 0.0]
    assert [one.reward for one in both] == pytest.approx([0.7, 0.6])
    assert both[0].labels == ("field",)
    before = [without_labels(one) for one in both]
    assert [(one.reward, one.parts, one.fields) for one in before] == [
        (0.2, {"ruler": 0.2}, {}),
        (0.6, {"ruler": 0.6}, {}),
    ]


def test_field_without_weight_and_agreement_only_change_no_reward() -> None:
    assert [one.reward for one in apply(config({}), label(*TONES))] == [0.2, 0.6]
    silent = apply(config({"tone": 1.0}), label(*TONES, effect="none"))
    assert [one.reward for one in silent] == [0.2, 0.6]
    assert silent[1].fields == {"tone": "rude"}


def test_field_joins_a_score_and_constraints() -> None:
    steps = (field(0, "steps", 10.0), field(1, "steps", 0.0), field(1, "steps", 5.0))
    settings = config({"label/steps": 1.0})
    scored = apply(settings, label(word("score", 0, value=0.9), *steps))
    assert scored[0].parts == {"label": 0.9, "label/steps": 1.0}
    assert [one.reward for one in scored] == pytest.approx([1.9, 1.1])
    rule = Constraint(part="label/steps", above=0.9, effect="veto", value=-1.0)
    vetoed = apply(config({"label/steps": 1.0}, constraints=[rule]), label(*steps))
    assert [one.reward for one in vetoed] == pytest.approx([-1.0, 1.1])


def test_metrics_of_fields() -> None:
    steps = (field(0, "steps", 10.0), field(1, "steps", 5.0))
    group = apply(config({"steps": 1.0}), label(*TONES, *steps, field(0, "why", "so")))
    metrics = rewards([group], GroupMean())
    found = {name: value for name, value in metrics.items() if "label/" in name}
    assert found == {
        "label/steps": 7.5,
        "label/tone/kind": 0.5,
        "label/tone/rude": 0.5,
        "reward/part/label/steps": 0.75,
    }
