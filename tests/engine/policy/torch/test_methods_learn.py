"""Every preset solves a bandit: eight tokens; every fourth token of the vocabulary is rewarded."""

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
from engine.protocol.records.conversations import Branch
from engine.protocol.records.runs import Trajectory
from engine.reward.advantage.group import advantages
from engine.training.step.batch import required_scores, rows, split_into_batches, train_items
from tests.support.tiny_model import make_tiny_model

GROUPS, SIZE, LENGTH, STEPS = 4, 8, 8, 6
LR = 1e-2


@pytest.fixture(scope="module")
def peaked_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny model with logits far from uniform, which move when it is trained."""
    folder = make_tiny_model(tmp_path_factory.mktemp("peaked"))
    file = folder / "model.safetensors"
    weights = load_file(file)
    scaled = {n: w * (10 if "embed" in n else 3 if w.dim() == 2 else 1) for n, w in weights.items()}
    save_file(scaled, file, metadata={"format": "pt"})
    return folder


def roll_out(model: LoraModel, step: int, algorithm: Algorithm) -> list[list[Trajectory]]:
    sampled: dict[int, list[SampledToken]] = {n: [] for n in range(GROUPS * SIZE)}
    sampler = Sampler(model, [2], lambda number, token, _: sampled[number].append(token))
    for number in sampled:
        prompt = [3 + number // SIZE, 50, 7]
        seed = step * 1000 + number
        sampler.add(number, SampleRequest(tokens=prompt, max_tokens=LENGTH, seed=seed))
    while sampler.busy:
        sampler.step()
    groups = []
    for group in range(GROUPS):
        completions = [sampled[group * SIZE + index] for index in range(SIZE)]
        rewards = [sum(t.token % 4 == 0 for t in tokens) / LENGTH for tokens in completions]
        advantages_ = advantages(algorithm.advantage, rewards)
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
                    advantage=advantages_[index],
                    sampled_tokens=len(tokens),
                    branches=[
                        Branch(
                            tokens=[3 + group, 50, 7, *(t.token for t in tokens)],
                            spans=[(3, 3 + len(tokens))],
                            logprobs=[t.logprob for t in tokens],
                        )
                    ],
                )
                for index, tokens in enumerate(completions)
            ]
        )
    return groups


def train_step(
    model: LoraModel, optimizer: Optimizer, groups: list[list[Trajectory]], train: TrainConfig
) -> None:
    def ignore_progress(done: int, total: int) -> None:
        pass

    training_rows = rows(groups, train.algorithm)
    score_batch = required_scores(training_rows, train)
    scores = score(model, score_batch, 4096, ignore_progress) if score_batch else []
    for batch in split_into_batches(
        groups, training_rows, train_items(training_rows, train.algorithm, scores), train
    ):
        forward_backward(model, batch, 4096, ignore_progress)
        optimizer.step(AdamStep(lr=LR))
        if model.value_head:
            model.value_head.step(1.0)
    assert score(model, ScoreBatch(items=[]), 4096, ignore_progress) == []


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_learns_the_bandit(peaked_model: Path, preset: PresetName) -> None:
    algorithm = Algorithm(preset=preset)
    train = TrainConfig(groups=GROUPS, max_tokens=LENGTH, algorithm=algorithm)
    model = LoraModel(
        PolicySpec(
            model_path=str(peaked_model),
            model=ModelConfig(dtype="float32", rank=8, alpha=32),
            seed=0,
            batch_tokens=4096,
            value_lr=1e-2 if isinstance(algorithm.advantage, PlainReward) else None,
        )
    )
    optimizer = Optimizer(model.adapter)
    means = []
    for step in range(STEPS):
        groups = roll_out(model, step, algorithm)
        means.append(sum(t.reward or 0 for group in groups for t in group) / (GROUPS * SIZE))
        train_step(model, optimizer, groups, train)
    assert means[0] < 0.2
    assert means[-1] > 0.6, means
