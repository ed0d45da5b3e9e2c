"""Models that read images: sampler, trainer and gradients equal plain transformers and PEFT."""

import asyncio
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForImageTextToText

from engine.models.architectures import architecture_problem
from engine.models.file_checks import read_json
from engine.policy.base import ImageInput, PolicySpec, SampledToken, SampleRequest, TrainItem
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.sampler import AloneSampler, Sampler
from engine.policy.worker import TorchPolicy
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import PolicyError, RolloutError
from tests.engine.policy.conftest import load
from tests.engine.policy.exactness import assert_exact, loaded, padded
from tests.support.seeing import KINDS, PLACEHOLDER, image_input, save_model

ROWS = ("qwen3_5", "qwen3_5_moe")
GRIDS = [(1, 4, 6), (1, 8, 4), (1, 6, 6)]


def prompt(
    folder: Path, *parts: int | list[int], before: list[ImageInput] | None = None
) -> tuple[list[int], list[ImageInput]]:
    """Tokens and images of a prompt; a number is an image with this seed."""
    tokens, images = list[int](), list(before or [])
    for part in parts:
        if isinstance(part, int):
            images.append(image_input(folder, part, len(tokens), GRIDS[part % len(GRIDS)]))
            tokens += [PLACEHOLDER] * images[-1].count
        else:
            tokens += part
    return tokens, images


def sample(model: LoraModel, requests: list[SampleRequest]) -> list[list[SampledToken]]:
    rows: list[list[SampledToken]] = [[] for _ in requests]
    kind = Sampler if model.shares_prefixes else AloneSampler
    sampler = kind(model, [], lambda number, token, end: rows[number].append(token))
    for number, request in enumerate(requests):
        sampler.add(number, model.with_images(request))
    while sampler.busy:
        sampler.step()
    return rows


def items_with_images(model: LoraModel, folder: Path) -> list[TrainItem]:
    """Two answers each to prompts with the same image, another of the same size, two images, none
    and one at the end; the first two get a second turn with a further image."""
    text = [3 + 7 * n * n % 250 for n in range(30)]
    prompts = [
        prompt(folder, text[:9], 0, text[9:14]),
        prompt(folder, text[:9], 3, text[9:14]),
        prompt(folder, text[:9], 0, text[9:12], 1, text[:5]),
        prompt(folder, text),
        prompt(folder, text[:7], 2),
    ]
    found = []
    for number in range(2 * len(prompts)):
        tokens, images = prompts[number // 2]
        turns, spans, logprobs = (2 if number < 4 else 1), [], []
        for turn in range(turns):
            if turn:
                tokens, images = prompt(folder, tokens, text[2:5], 1, text[5:8], before=images)
            count = 5 + number
            for seed in (number, 100 + number):  # transformers refuses placeholders without images
                request = SampleRequest(tokens=tokens, images=images, max_tokens=count, seed=seed)
                sampled = sample(model, [request])[0]
                if PLACEHOLDER not in [one.token for one in sampled]:
                    break
            spans.append((len(tokens), len(tokens) + count))
            tokens = tokens + [one.token for one in sampled]
            logprobs += [one.logprob for one in sampled]
        advantages = [(-1.0) ** number * (1 + number / 4)] * len(logprobs)
        found.append(
            TrainItem(
                tokens=tokens, images=images, spans=spans, logprobs=logprobs, advantages=advantages
            )
        )
    return found


def image_arguments(items: list[TrainItem]) -> dict[str, Tensor]:
    """Arguments of a transformers model for the images of a padded batch of items."""
    stored = [load_file(image.file) for item in items for image in item.images]
    return {
        "pixel_values": torch.cat([one["pixels"] for one in stored]),
        "image_grid_thw": torch.stack([one["grid"] for one in stored]),
        "mm_token_type_ids": (padded(items)[0] == PLACEHOLDER).int(),
    }


@pytest.mark.parametrize(
    ("kind", "experts"),
    [*((kind, False) for kind in KINDS), ("qwen3_vl_moe", True), ("qwen3_5_moe", True)],
)
def test_sampler_and_gradients_equal_transformers(kind: str, experts: bool, tmp_path: Path) -> None:
    folder = save_model(kind, tmp_path / "model")
    assert architecture_problem(read_json(folder / "config.json"), kind) is None
    model = loaded(folder, adapt_experts=experts)
    assert model.images is not None
    assert model.shares_prefixes == (kind not in ROWS)
    assert model.publish_gap() <= 1e-4
    items = items_with_images(model, tmp_path / "images")
    base = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager")
    given = image_arguments(items)
    assert_exact(kind, model, base, items, tmp_path / "adapter", given)
    assert not any("visual" in name for name in model.adapter)
    assert any("experts" in name for name in model.adapter) == experts


def test_the_cache_reuses_equal_images_only(tmp_path: Path) -> None:
    model = loaded(save_model("qwen3_vl", tmp_path / "model"))
    tail = list(range(5, 30))
    prompts = [prompt(tmp_path / "images", [7, 8], seed, tail) for seed in (0, 0, 3)]
    sampler = Sampler(model, [], lambda number, token, end: None)
    for number, (tokens, images) in enumerate(prompts):
        request = SampleRequest(tokens=tokens, images=images, max_tokens=2, seed=number)
        sampler.add(number, model.with_images(request))
        while sampler.busy:
            sampler.step()
    length = len(prompts[0][0])
    assert sampler.computed_tokens == length + 1 + length  # of the third not even two are worth it
    assert sampler.reused_tokens == length - 1


def test_evicted_outputs_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.policy.torch.model.images.KEPT_BYTES", 1)
    model = load(save_model("qwen2_5_vl", tmp_path / "model"))
    tokens, images = prompt(tmp_path / "images", [7, 8], 0, [9], 1, [10, 11])
    request = SampleRequest(tokens=tokens, images=images, max_tokens=3, seed=0)
    assert sample(model, [request]) == sample(model, [request])
    assert model.images is not None
    assert len(model.images._outputs) == 1


def test_missing_and_unfit_images_are_refused(tmp_path: Path) -> None:
    model = load(save_model("qwen2_vl", tmp_path / "model"))
    tokens, images = prompt(tmp_path / "images", [7, 8], 0, [9])
    request = SampleRequest(tokens=tokens, images=images, max_tokens=1, seed=0)
    gone = images[0].model_copy(update={"file": str(tmp_path / "gone"), "id": "0" * 64})
    with pytest.raises(PolicyError, match="cannot be given to the model"):
        model.with_images(request.model_copy(update={"images": [gone]}))
    longer = images[0].model_copy(update={"count": images[0].count + 1})
    with pytest.raises(PolicyError, match="6 tokens in place of 7"):
        model.with_images(request.model_copy(update={"images": [longer]}))


def test_missing_image_ends_its_request_alone(tmp_path: Path) -> None:
    folder = save_model("qwen2_5_vl", tmp_path / "model")
    tokens, images = prompt(tmp_path / "images", [7, 8], 0, [9, 10])
    request = SampleRequest(tokens=tokens, images=images, max_tokens=3, seed=0)

    async def job() -> None:
        policy = await TorchPolicy.start(tmp_path / "run.log", "tiny")
        try:
            model = ModelConfig(name="tiny", dtype="float32", rank=4, max_context=256)
            spec = PolicySpec(model_path=str(folder), model=model, seed=1, batch_tokens=512)
            assert (await policy.load(spec)).reads_images
            other = image_input(tmp_path / "images", 5, 2, (1, 4, 6))
            Path(other.file).unlink()
            gone = request.model_copy(update={"images": [other]})
            with pytest.raises(RolloutError, match="cannot be given to the model"):
                _ = [part async for part in policy.sample(gone)]
            sampled = [token async for part in policy.sample(request) for token in part]
            assert len(sampled) == 3
        finally:
            await policy.close()

    asyncio.run(job())
