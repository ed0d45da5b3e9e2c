"""A real SkyRL server on the CPU: gradients that arrive there are those of our trainer."""

import asyncio
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psutil
import pytest
import torch
from safetensors.torch import load_file

from engine.integrations.skyrl.server import CLIENT, SkyrlPlan, free_port, skyrl_server
from engine.policy import base
from engine.policy.tinker.cluster import ClusterAccess
from engine.policy.tinker.policy import TinkerPolicy
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.training.trainer import forward_backward
from engine.protocol.config.algorithm import Algorithm, Cispo, Clipped, Gspo, SequenceMask
from engine.protocol.config.project import ModelConfig
from engine.protocol.requests.clusters import ClusterSpec, SkyrlSettings
from engine.runtime.child import ChildDied, descendants
from tests.support.tiny_model import make_tiny_model

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
RANK = 8
METHODS: dict[str, tuple[Algorithm, Literal["policy_gradient", "supervised"]]] = {
    "GRPO": (Algorithm(loss=Clipped(low=0.1, high=0.1)), "policy_gradient"),
    "DAPO": (Algorithm(loss=Clipped(low=0.2, high=0.28)), "policy_gradient"),
    "GSPO": (
        Algorithm(loss=Gspo(low=0.05, high=0.05), correction=SequenceMask(low=0.8, high=1.25)),
        "policy_gradient",
    ),
    "CISPO": (Algorithm(loss=Cispo(low=1.0, high=0.28)), "policy_gradient"),
    "RLOO with KL": (Algorithm(kl=0.05), "policy_gradient"),
    "SFT": (Algorithm(), "supervised"),
}


def batch_of(method: str, scores: list[list[float]]) -> base.TrainBatch:
    """Six trajectories with a common prompt and different lengths, sampled by weights that are
    a little older than the trainer's."""
    algorithm, objective = METHODS[method]
    chance = random.Random(3)
    items = []
    for index, row in enumerate(scores):
        sampled = [value + chance.gauss(0, 0.15) for value in row]
        before = [value + chance.gauss(0, 0.1) for value in row]
        items.append(
            item_of(index).model_copy(
                update={
                    "logprobs": sampled,
                    "old_logprobs": before,
                    "advantages": [chance.choice([-0.7, 0.4, 1.1])] * len(row),
                    "weight": chance.choice([0.5, 1.0]),
                }
            )
        )
    return base.TrainBatch(
        items=items, objective=objective, algorithm=algorithm, normaliser=sum(map(len, scores))
    )


def plan_of(model: Path, state: Path) -> SkyrlPlan:
    settings = SkyrlSettings(model="tiny", sequences=4)
    return SkyrlPlan(settings=settings, model=model, state=state, port=free_port())


def item_of(index: int) -> base.TrainItem:
    chance = random.Random(index)
    prompt, more = [1, 40, 41, 42, 43], 4 + 3 * index
    tokens = prompt + [chance.randrange(3, 259) for _ in range(more)]
    spans = [(5, 7), (8, len(tokens))] if more > 5 else [(5, len(tokens))]
    return base.TrainItem(tokens=tokens, spans=spans)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("skyrl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        yield make_tiny_model(folder / "tiny")


def test_gradients_are_those_of_our_trainer(model: Path, tmp_path: Path) -> None:
    """The server's gradient is read from a step with β = 0, ε = 1 and rate 1, which adds
    −g / (|g| + 1) to each weight."""

    async def work() -> dict[str, float]:
        plan = plan_of(model, tmp_path / "state")
        log = tmp_path / "log"
        async with skyrl_server(plan, log):
            spec = ClusterSpec(name="box", address=plan.address, client=CLIENT)
            policy = await TinkerPolicy.start(log, "tiny", ClusterAccess(spec))
            try:
                return await compared(policy, model, tmp_path)
            finally:
                await policy.close()

    found = asyncio.run(work())
    print({name: f"{error:.1e}" for name, error in found.items()})
    assert found.keys() == METHODS.keys()
    assert max(found.values()) <= 1e-4


async def compared(policy: TinkerPolicy, model: Path, scratch: Path) -> dict[str, float]:
    """Relative error of the gradient (norm of the difference by norm) for each method."""
    shape = ModelConfig(name=str(model), rank=RANK, alpha=32, dtype="float32", max_context=64)
    spec = base.PolicySpec(model_path=str(model), model=shape, seed=1, batch_tokens=512)
    info = await policy.load(spec)
    assert info.cluster is not None
    print(info.cluster.words)
    assert (info.cluster.sequences, info.cluster.tokens) == ("mean", "mean")
    assert not info.cluster.clips
    assert not info.cluster.pinned
    items = [item_of(index) for index in range(6)]
    demonstrations = base.TrainBatch(items=items, objective="supervised", normaliser=60)
    await policy.publish(0)
    await policy.forward_backward(demonstrations)
    await policy.optim_step(base.AdamStep(lr=0.02))  # B is 0 before, and A without a gradient
    await policy.publish(1)
    folder = scratch / "checkpoint"
    folder.mkdir()
    await policy.save(folder)
    before = load_file(folder / "adapter" / "adapter_model.safetensors")
    scores = [one.logprobs for one in await policy.score(base.ScoreBatch(items=items))]
    errors = {}
    for number, method in enumerate(METHODS):
        batch = batch_of(method, scores)
        await policy.restore(folder)
        metrics = await policy.forward_backward(batch)
        await policy._send_gradients()
        await policy._cluster.step(
            learning_rate=1.0, beta1=0.0, beta2=0.0, eps=1.0, weight_decay=0.0, grad_clip_norm=0.0
        )
        policy._changed = True
        await policy.save_adapter(scratch / str(number))
        after = load_file(scratch / str(number) / "adapter_model.safetensors")
        theirs = {name: _gradient(before[name] - after[name]) for name in before}
        ours, expected = our_gradient(spec, folder / "adapter", batch)
        assert metrics["loss"] == pytest.approx(expected["loss"], abs=1e-5)
        assert theirs.keys() == ours.keys()
        difference = sum((theirs[name] - ours[name]).square().sum().item() for name in ours)
        size = sum(value.square().sum().item() for value in ours.values())
        assert size > 0
        errors[method] = math.sqrt(difference / size)
    return errors


def _gradient(change: torch.Tensor) -> torch.Tensor:
    """g from g / (|g| + 1)."""
    wide = change.double()
    return wide / (1 - wide.abs())


def our_gradient(
    spec: base.PolicySpec, adapter: Path, batch: base.TrainBatch
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Gradient of the torch trainer by tensor name of the PEFT file, and its metrics."""
    model = LoraModel(spec)
    model.load_adapter(adapter)
    metrics = forward_backward(model, batch, 512, lambda done, total: None)
    found = {
        name.replace(".default.", "."): parameter.grad.double()
        for name, parameter in model.trained.named_parameters()
        if parameter.grad is not None
    }
    return found, metrics


def test_state_survives_a_killed_server(model: Path, tmp_path: Path) -> None:
    """A server that is killed and started again on its state continues from the checkpoint, and
    the next step is that of the policy that was never interrupted."""
    items = [item_of(index) for index in range(6)]
    batch = base.TrainBatch(items=items, objective="supervised", normaliser=60)
    folder, log = tmp_path / "checkpoint", tmp_path / "log"
    plan = plan_of(model, tmp_path / "state")
    shape = ModelConfig(name=str(model), rank=RANK, alpha=32, dtype="float32", max_context=64)
    spec = base.PolicySpec(model_path=str(model), model=shape, seed=1, batch_tokens=512)

    async def one_more(policy: TinkerPolicy) -> list[list[float]]:
        await policy.forward_backward(batch)
        await policy.optim_step(base.AdamStep(lr=0.02))
        return [row.logprobs for row in await policy.score(base.ScoreBatch(items=items))]

    async def begin() -> list[list[float]]:
        async with skyrl_server(plan, log) as server:
            cluster = ClusterSpec(name="box", address=plan.address, client=CLIENT)
            policy = await TinkerPolicy.start(log, "tiny", ClusterAccess(cluster))
            try:
                await policy.load(spec)
                await policy.publish(0)
                await one_more(policy)
                await policy.publish(1)
                folder.mkdir()
                await policy.save(folder)
                went_on = await one_more(policy)
                for process in [psutil.Process(server.pid), *descendants(server.pid)]:
                    process.kill()
                with pytest.raises(ChildDied):
                    await one_more(policy)
                return went_on
            finally:
                await policy.close()

    async def go_on() -> list[list[float]]:
        async with skyrl_server(plan, log):
            cluster = ClusterSpec(name="box", address=plan.address, client=CLIENT)
            policy = await TinkerPolicy.start(log, "tiny", ClusterAccess(cluster))
            try:
                await policy.load(spec)
                await policy.restore(folder)
                await policy.publish(1)
                return await one_more(policy)
            finally:
                await policy.close()

    expected = asyncio.run(begin())
    assert asyncio.run(go_on()) == expected
