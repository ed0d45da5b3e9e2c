"""Utilization: FLOP formulas against torch's own counts and hand counts."""

from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from engine.hardware.flops import (
    decode_bytes,
    decode_flops,
    forward_flops,
    least_seconds,
    train_flops,
)
from engine.policy.base import SampleRequest, TrainBatch, TrainItem
from engine.policy.torch.machine_limits import Limits, measure_bandwidth, measure_peak
from engine.policy.torch.model.adapter import LoraLinear
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.sampler import Sampler
from engine.policy.torch.training.prefix_tree import TreePlan, grow
from engine.policy.torch.training.trainer import forward_backward
from engine.policy.torch.utilization import SampleEffort, TrainEffort
from tests.engine.policy.conftest import load

PROMPT = list(range(3, 40))
UNIT = Limits(1.0, 1.0)


def counter() -> FlopCounterMode:
    """Torch's FLOP counter, extended by in-place `addmm` and oneDNN's linear."""

    def product(_: list[int], left: list[int], right: list[int], **others: object) -> int:
        return 2 * left[0] * left[1] * right[1]

    def linear(x: list[int], weight: list[int], *others: object, **more: object) -> int:
        return 2 * x[0] * weight[0] * weight[1]

    ops = torch.ops
    mapping = {ops.aten.addmm_: product, ops.mkldnn._linear_pointwise: linear}
    return FlopCounterMode(display=False, custom_mapping=mapping)


def batch(completions: list[list[int]]) -> TrainBatch:
    items = [
        TrainItem(
            tokens=PROMPT + completion,
            spans=[(len(PROMPT), len(PROMPT) + len(completion))],
            logprobs=[-4.0] * len(completion),
        )
        for completion in completions
    ]
    return TrainBatch(items=items, normaliser=10)


def skipped_flops(model: LoraModel, tokens: int) -> int:
    """FLOPs saved because the first layer's inputs need no gradient (q, k, v, base and LoRA)."""
    first = [
        layer
        for name, layer in model.trained.named_modules()
        if isinstance(layer, LoraLinear) and ".layers.0.self_attn." in name and "o_proj" not in name
    ]
    weights = sum(
        layer.get_base_layer().weight.numel() + layer.lora_A["default"].weight.numel()
        for layer in first
    )
    return 2 * weights * tokens


def bundled_zeros(model: LoraModel) -> int:
    """Entries outside the blocks of the fused B, by which the sampler also multiplies."""
    metrics = 0
    for names in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")):
        for block in model.trained.modules():
            layers = [getattr(block, name, None) for name in names]
            if all(isinstance(layer, LoraLinear) for layer in layers):
                ups = [layer.lora_B["default"].weight for layer in layers]
                rank, outputs = ups[0].shape[1], sum(len(up) for up in ups)
                metrics += (len(ups) - 1) * rank * outputs
    return metrics


def test_training_flops_match_the_formula(folder: Path) -> None:
    """Single sequence, no padding. Without the flash kernel attention is two plain products forward
    and four backward, over the whole square."""
    model = load(folder)
    assert model.limits.peak > 0
    assert model.shares_prefixes
    completion = [7, 8, 9, 10, 11]
    tokens = len(PROMPT) + len(completion) - 1
    with counter() as counter_, sdpa_kernel(SDPBackend.MATH):
        forward_backward(model, batch([completion]), 999, lambda done, total: None)
    expected = train_flops(model.shape, tokens, len(completion), tokens * tokens)
    expected -= skipped_flops(model, tokens)
    expected_ = pytest.approx(expected, rel=1e-4)  # neither rotary nor mean logits are in a formula
    assert counter_.get_total_flops() == expected_


def test_decode_flops_match_the_formula(tiny_model: Path) -> None:
    model = load(tiny_model)
    assert model.limits.peak > 0
    assert model.shares_prefixes
    sampler = Sampler(model, [], lambda number, token, finish: None)
    sampler.add(0, SampleRequest(tokens=PROMPT, max_tokens=5, seed=0))
    sampler.step()
    with counter() as counter_, sdpa_kernel(SDPBackend.MATH):
        sampler.step()
    context = len(PROMPT) + 1
    expected = decode_flops(model.shape, 1, context) + 2 * model.shape.adapter
    expected += 2 * bundled_zeros(model)
    assert counter_.get_total_flops() == pytest.approx(expected, rel=1e-3)


def test_goodput_counts_shared_tokens_once_and_no_padding(tiny_model: Path) -> None:
    shape = load(tiny_model).shape
    sequences = [PROMPT + [50] * 6, PROMPT + [60] * 9, PROMPT + [60] * 9]
    effort = TrainEffort(shape, sequences)
    plan = TreePlan(grow(sequences), torch.device("cpu"))
    effort.ran(plan, 10, 12, False)
    metrics = effort.metrics(UNIT, 2.0)
    start = len(PROMPT)
    pairs = shape.pairs(0, start) + shape.pairs(start, start + 6) + shape.pairs(start, start + 9)
    assert metrics["goodput/train"] == train_flops(shape, start + 15, 10, pairs) / 2
    assert metrics["tokens/forwarded"] == start + 15
    assert metrics["sharing/train"] == (start + 15) / (3 * start + 24)
    # the shorter one (6 of 9, so they attend together) is padded
    rectangle = shape.pairs(0, start) + 2 * 9 * (start + 9)
    done = train_flops(shape, start + 15, 12, rectangle) + 0.5 * shape.pair_flops * rectangle
    assert metrics["hardware/train"] == pytest.approx(done / 2)


def test_splitting_a_group_raises_the_sharing_ratio(tiny_model: Path) -> None:
    model = load(tiny_model)
    completion = [[50 + n] * 5 for n in range(6)]
    unsplit = forward_backward(model, batch(completion), 999, lambda done, total: None)
    split = forward_backward(model, batch(completion), 50, lambda done, total: None)
    assert split["sharing/train"] > unsplit["sharing/train"]
    for metrics in (unsplit, split):
        assert 0 < metrics["goodput/train"] < metrics["hardware/train"]


def test_reference_pass_adds_its_forward_flops(tiny_model: Path) -> None:
    shape = load(tiny_model).shape
    goodputs = []
    for reference in (False, True):
        effort = TrainEffort(shape, [PROMPT])
        effort.ran(TreePlan(grow([PROMPT]), torch.device("cpu")), 4, 4, reference)
        goodputs.append(effort.metrics(UNIT, 1.0)["goodput/train"])
    length = len(PROMPT)
    assert goodputs[1] - goodputs[0] == forward_flops(shape, length, 4, shape.pairs(0, length))


def test_sampling_effort_is_measured_per_pass_and_reset(tiny_model: Path) -> None:
    shape = load(tiny_model).shape
    effort = SampleEffort(shape)
    assert effort.take() == {}
    effort.joined(30, 90)
    effort.ran([(10, 11), (20, 21)], 3 * 21, Limits(1e12, 1.0), 4.0)
    metrics = effort.take()
    assert metrics["goodput/sample"] == decode_bytes(shape, 32) / 4
    assert metrics["hardware/sample"] == decode_bytes(shape, 63) / 4
    assert metrics["rows/sample"] == 2
    assert metrics["sharing/sample"] == 0.25
    assert effort.take() == {}
    effort.ran([(10, 11), (20, 21)], 3 * 21, Limits(1.0, 1e12), 4.0)
    needed = least_seconds(decode_flops(shape, 2, 32), 0, 1.0, 1.0)
    assert effort.take()["goodput/sample"] == needed / 4


def test_prompt_flops_count_the_causal_triangle(tiny_model: Path) -> None:
    shape = load(tiny_model).shape
    effort = SampleEffort(shape)
    effort.ran([(4, 10)], 0, Limits(1.0, 1e12), 1.0)
    needed = forward_flops(shape, 6, 1, shape.pairs(4, 10))
    assert effort.take()["goodput/sample"] == needed


def test_sampled_group_reports_utilization(tiny_model: Path) -> None:
    model = load(tiny_model)
    sampler = Sampler(model, [], lambda number, token, finish: None)
    for number in range(4):
        sampler.add(number, SampleRequest(tokens=PROMPT, max_tokens=5, seed=number))
    while sampler.busy:
        sampler.step()
    metrics = sampler.effort.take()
    assert 0 < metrics["goodput/sample"] <= metrics["hardware/sample"] * 1.01
    assert metrics["sharing/sample"] == (len(PROMPT) + 3) / (4 * len(PROMPT))
    assert metrics["time_s/sampling"] > 0


def test_shape_describes_the_model(folder: Path) -> None:
    shape = load(folder).shape
    layer = 48 * 192 * 2 + 2 * 48 * 64 + 3 * 48 * 80
    assert shape.body == 3 * layer
    assert shape.head == 48 * 97
    assert shape.layers == 3
    assert {"llama": 0, "qwen3": 0, "qwen2": 1, "gemma3": 2, "mistral": 3}[folder.name] == sum(
        window == 12 for window in shape.windows
    )


def test_peak_and_bandwidth_are_measured() -> None:
    assert 1e8 < measure_peak(torch.float32, rows=8) < 1e16
    assert 1e8 < measure_bandwidth() < 1e14
