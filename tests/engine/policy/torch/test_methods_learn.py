"""Every method learns a bandit: eight tokens, of which each fourth of the alphabet pays."""

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from engine.policy.base import AdamStep, PolicySpec, SampledToken, SampleRequest, ScoreBatch
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.sampler import Sampler
from engine.policy.torch.training.optimizer import Optimizer
from engine.policy.torch.training.trainer import forward_backward, score
from engine.protocol.config.algorithm import Algorithm, PlainReward
from engine.protocol.config.presets import PRESETS, PresetName
from engine.protocol.config.project import ModelConfig, TrainConfig
from engine.protocol.records.runs import Branch, Trajectory
from engine.reward.advantage.group import advantages
from engine.training.step.batch import required_scores, rows, split_into_batches, train_items
from tests.support.tiny_model import make_tiny_model

GROUPS, SIZE, LENGTH, STEPS = 4, 8, 8, 6
LR = 1e-2


@pytest.fixture(scope="module")
def lively(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that is far from uniform: its logits move when it learns."""
    folder = make_tiny_model(tmp_path_factory.mktemp("lively"))
    file = folder / "model.safetensors"
    weights = load_file(file)
    loud = {n: w * (10 if "embed" in n else 3 if w.dim() == 2 else 1) for n, w in weights.items()}
    save_file(loud, file, metadata={"format": "pt"})
    return folder


def attempts(model: LoraModel, step: int, algorithm: Algorithm) -> list[list[Trajectory]]:
    drawn: dict[int, list[SampledToken]] = {n: [] for n in range(GROUPS * SIZE)}
    sampler = Sampler(model, [2], lambda number, token, _: drawn[number].append(token))
    for number in drawn:
        prompt = [3 + number // SIZE, 50, 7]
        seed = step * 1000 + number
        sampler.add(number, SampleRequest(tokens=prompt, max_tokens=LENGTH, seed=seed))
    while sampler.busy:
        sampler.step()
    groups = []
    for group in range(GROUPS):
        said = [drawn[group * SIZE + index] for index in range(SIZE)]
        rewards = [sum(t.token % 4 == 0 for t in tokens) / LENGTH for tokens in said]
        given = advantages(algorithm.advantage, rewards)
        groups.append(
            [
                Trajectory(
                    id=f"{group}-{index}",
                    split="train",
                    step=step,
                    group=group,
                    index=index,
                    scenario_id="",
                    title="",
                    reward=rewards[index],
                    advantage=given[index],
                    sampled_tokens=len(tokens),
                    branches=[
                        Branch(
                            tokens=[3 + group, 50, 7, *(t.token for t in tokens)],
                            spans=[(3, 3 + len(tokens))],
                            logprobs=[t.logprob for t in tokens],
                        )
                    ],
                )
                for index, tokens in enumerate(said)
            ]
        )
    return groups


def learn(
    model: LoraModel, optimizer: Optimizer, groups: list[list[Trajectory]], train: TrainConfig
) -> None:
    def quiet(done: int, total: int) -> None:
        pass

    found = rows(groups, train.algorithm)
    wanted = required_scores(found, train)
    scores = score(model, wanted, 4096, quiet) if wanted else []
    for batch in split_into_batches(
        groups, found, train_items(found, train.algorithm, scores), train
    ):
        forward_backward(model, batch, 4096, quiet)
        optimizer.step(AdamStep(lr=LR))
        if model.value_head:
            model.value_head.step(1.0)
    assert score(model, ScoreBatch(items=[]), 4096, quiet) == []


@pytest.mark.parametrize("preset", PRESETS)
def test_it_learns(lively: Path, preset: PresetName) -> None:
    algorithm = Algorithm(preset=preset)
    train = TrainConfig(groups=GROUPS, max_tokens=LENGTH, algorithm=algorithm)
    model = LoraModel(
        PolicySpec(
            model_path=str(lively),
            model=ModelConfig(dtype="float32", rank=8, alpha=32),
            seed=0,
            batch_tokens=4096,
            value_lr=1e-2 if isinstance(algorithm.advantage, PlainReward) else None,
        )
    )
    optimizer = Optimizer(model.adapter)
    means = []
    for step in range(STEPS):
        groups = attempts(model, step, algorithm)
        means.append(sum(t.reward or 0 for group in groups for t in group) / (GROUPS * SIZE))
        learn(model, optimizer, groups, train)
    assert means[0] < 0.2
    assert means[-1] > 0.6, means
