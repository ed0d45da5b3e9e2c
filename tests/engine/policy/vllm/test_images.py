"""vLLM with images: log-probs equal the trainer's, before and after an update, also when a second
turn adds an image."""

import asyncio
from pathlib import Path

import pytest

from engine.policy.base import (
    AdamStep,
    ImageInput,
    PolicySpec,
    SampledToken,
    SampleRequest,
    ScoreBatch,
    TrainBatch,
    TrainItem,
)
from engine.policy.vllm.policy import VllmPolicy
from engine.policy.vllm.process import ServerPlace, has_torchvision, python_with_vllm
from engine.policy.worker import TorchPolicy
from engine.protocol.config.project import ModelConfig
from tests.support.seeing import PLACEHOLDER, image_input, save_model, save_processor

pytestmark = pytest.mark.long
KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
TOLERANCE = 1e-4


async def answered(
    policy: VllmPolicy, tokens: list[int], images: list[ImageInput], seed: int
) -> tuple[TrainItem, list[SampledToken]]:
    request = SampleRequest(
        tokens=tokens, images=images, max_tokens=12, seed=seed, top_logprobs=2, ignore_eos=True
    )
    sampled = [token async for part in policy.sample(request) for token in part]
    item = TrainItem(
        tokens=tokens + [one.token for one in sampled],
        images=images,
        spans=[(len(tokens), len(tokens) + len(sampled))],
        logprobs=[one.logprob for one in sampled],
        advantages=[(-1.0) ** seed] * len(sampled),
    )
    return item, sampled


async def gap(policy: VllmPolicy, items: list[TrainItem]) -> float:
    scores = await policy.score(ScoreBatch(items=items))
    return max(
        abs(theirs - ours)
        for item, score in zip(items, scores, strict=True)
        for theirs, ours in zip(item.logprobs, score.logprobs, strict=True)
    )


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", KINDS)
def test_images_are_sampled_as_they_are_trained(kind: str, tmp_path: Path) -> None:
    if not has_torchvision(python_with_vllm(cuda=False)):
        pytest.skip("torchvision's wheels need a CUDA build of torch")
    folder = save_model(kind, tmp_path / "model")
    save_processor(folder)
    first = image_input(tmp_path / "images", 1, 4, (1, 8, 4))
    head = [5, 6, 7, 302] + [PLACEHOLDER] * first.count + [303, 9, 10]

    async def job() -> None:
        torch = await TorchPolicy.start(tmp_path / "run.log", "tiny")
        policy = VllmPolicy(torch, tmp_path / "run.log", ServerPlace(rows=4))
        try:
            model = ModelConfig(name="tiny", dtype="float32", rank=4, max_context=256)
            spec = PolicySpec(model_path=str(folder), model=model, seed=1, batch_tokens=512)
            info = await policy.load(spec)
            assert info.reads_images
            await policy.publish(0)
            for version in range(1, 3):
                turns = await asyncio.gather(
                    *(answered(policy, head, [first], seed) for seed in range(4))
                )
                items = [item for item, _ in turns]
                second = image_input(tmp_path / "images", 2, len(items[0].tokens) + 2, (1, 4, 6))
                longer = [*items[0].tokens, 11, 302, *[PLACEHOLDER] * second.count, 303, 12]
                items.append((await answered(policy, longer, [first, second], 9))[0])
                assert await gap(policy, items) <= TOLERANCE
                assert all(len(one.top) == 2 for _, sampled in turns for one in sampled)
                count = sum(len(item.logprobs) for item in items)
                await policy.forward_backward(TrainBatch(items=items, normaliser=count))
                await policy.optim_step(AdamStep(lr=1e-2))
                metrics = await policy.publish(version)
                print(kind, version, metrics)
        finally:
            await policy.close()

    asyncio.run(job())
