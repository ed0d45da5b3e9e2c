"""Project config: every field is documented, and defaults are as designed."""

from typing import Any

import pytest
from pydantic import BaseModel

from engine.protocol.config.algorithm import Clipped, TokenCap
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import config_problems


def sections(model: type[BaseModel], visited: set[type[BaseModel]]) -> set[type[BaseModel]]:
    if model in visited:
        return visited
    visited.add(model)
    for field in model.model_fields.values():
        for option in (field.annotation, *_arguments(field.annotation)):
            if isinstance(option, type) and issubclass(option, BaseModel):
                sections(option, visited)
    return visited


def _arguments(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__args__", ())


def test_every_setting_has_a_description() -> None:
    undocumented = [
        f"{model.__name__}.{name}"
        for model in sections(ProjectConfig, set())
        for name, field in model.model_fields.items()
        if not field.description and name != "kind" and model is not ProjectConfig
    ]
    assert undocumented == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": {"thinking_budget": 256}}, "train has max_tokens = 256, which leaves no room"),
        ({"model": {"thinking_budget": 300}, "train": {"max_tokens": 200}}, "train has max_tokens"),
        ({"model": {"thinking_budget": 8, "thinking": "off"}}, "model has a thinking_budget, but"),
        ({"model": {"thinking_budget": 0}}, "model.thinking_budget should be greater"),
        ({"model": {"thinking_budget": 255}}, None),
    ],
)
def test_thinking_budget_leaves_room_for_an_answer(
    values: dict[str, Any], words: str | None
) -> None:
    problems = config_problems(values)
    assert len(problems) == (words is not None)
    assert all(problem.message.startswith(words or "") for problem in problems)


@pytest.mark.parametrize("role", ["trainer", "sampler"])
def test_experts_are_adapted_by_the_torch_backend_alone(role: str) -> None:
    program = {"trainer": "unsloth", "sampler": "vllm"}[role]
    values = {"model": {"adapt_experts": True}, "backend": {role: program}}
    (problem,) = config_problems(values)
    assert problem.message == (
        f"backend has {role} = {program}, which cannot apply an adapter of experts: set "
        f"backend.{role} to torch, or model.adapt_experts to false."
    )
    assert config_problems({"model": {"adapt_experts": True}}) == []
    assert config_problems({"backend": {role: program}}) == []


def test_default_settings_match_the_design() -> None:
    train = ProjectConfig().train
    assert train.algorithm.advantage.kind == "group_mean"
    assert train.algorithm.loss == Clipped(low=0.2, high=0.28)
    assert train.algorithm.correction == TokenCap(cap=2)
    assert (train.lr, train.algorithm.max_grad_norm, train.group_size) == (1e-5, 1.0, 8)
    model = ProjectConfig().model
    assert (model.rank, model.alpha) == (16, 32)
