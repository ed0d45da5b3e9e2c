"""The derivative by log-probs carries the gradient of the torch trainer."""

from pathlib import Path

import pytest
import torch

from engine.policy.base import PolicySpec, ScoreBatch, TrainBatch, TrainItem
from engine.policy.tinker.losses import gradient
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.training.trainer import forward_backward, score
from engine.protocol.config.algorithm import Algorithm, Cispo, Gspo
from engine.protocol.config.project import ModelConfig

ALGORITHMS = {
    "clipped": Algorithm(),
    "cispo": Algorithm(loss=Cispo()),
    "gspo": Algorithm(loss=Gspo(low=0.1, high=0.1)),
    "kl": Algorithm(kl=0.1),
}


@pytest.mark.parametrize("name", [*ALGORITHMS, "supervised"])
def test_chain_rule_gives_the_gradient_of_the_trainer(tiny_model: Path, name: str) -> None:
    shape = ModelConfig(name=str(tiny_model), rank=4, dtype="float32", max_context=64)
    spec = PolicySpec(model_path=str(tiny_model), model=shape, seed=1, batch_tokens=99)
    model = LoraModel(spec)
    with torch.no_grad():
        for parameter in model.adapter.values():
            parameter.add_(0.05 * torch.ones_like(parameter))
    items = [
        TrainItem(tokens=[1, 40, 41, 60, 61, 62], spans=[(3, 6)], weight=0.5),
        TrainItem(tokens=[1, 40, 41, 70, 9, 71, 8], spans=[(3, 4), (5, 7)]),
    ]
    scores = score(model, ScoreBatch(items=items, reference=True), 99, lambda done, total: None)
    items = [
        item.model_copy(
            update={
                "logprobs": [value - 0.05 * n for n, value in enumerate(row.logprobs)],
                "advantages": [0.7 - n for n in range(3)],
            }
        )
        for item, row in zip(items, scores, strict=True)
    ]
    batch = TrainBatch(
        items=items,
        objective="supervised" if name == "supervised" else "policy_gradient",
        algorithm=ALGORITHMS.get(name, Algorithm()),
        normaliser=6,
    )
    expected = forward_backward(model, batch, 99, lambda done, total: None)
    wanted = {key: p.grad.clone() for key, p in model.adapter.items() if p.grad is not None}
    rows, metrics = gradient(
        batch, [one.logprobs for one in scores], [one.reference for one in scores]
    )
    for parameter in model.adapter.values():
        parameter.grad = None
    carrier = TrainBatch(  # ratio 1, no clipping: Σ advantage · ratio, as a cluster computes it
        items=[
            item.model_copy(
                update={"logprobs": one.logprobs, "advantages": [-v for v in row], "weight": 1.0}
            )
            for item, one, row in zip(items, scores, rows, strict=True)
        ],
        normaliser=1,
    )
    forward_backward(model, carrier, 99, lambda done, total: None)
    square = error = 0.0
    for key, gradient_of in wanted.items():
        found = model.adapter[key].grad
        assert found is not None
        square += gradient_of.square().sum().item()
        error += (found - gradient_of).square().sum().item()
    assert square > 0
    assert (error / square) ** 0.5 <= 1e-5
    assert metrics["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert ("kl" in metrics) == (name == "kl")
    assert metrics.get("kl", 0.0) == pytest.approx(expected.get("kl", 0.0), rel=1e-4)
