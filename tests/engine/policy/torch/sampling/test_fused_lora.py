"""Fused LoRA layers of the sampler compute the same as the single layers."""

from pathlib import Path

import pytest
import torch

from engine.hardware import forecast
from engine.policy.torch.model.adapter import LoraLinear
from engine.policy.torch.model.linear import Packed, can_pack, pack, packed_linear, times
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.training.prefix_tree import TreePlan, grow
from tests.engine.policy.conftest import load

TOKENS = [5, 9, 31, 40, 22, 17, 60, 3]
PER_LAYER = [["q_proj", "k_proj", "v_proj"], ["o_proj"], ["gate_proj", "up_proj"], ["down_proj"]]


def load_perturbed(folder: Path) -> LoraModel:
    """Load with a non-zero adapter and non-zero biases."""
    model = load(folder)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.trained.named_parameters():
            if "lora_B" in name or name.endswith("bias"):
                parameter.normal_(0, 0.2)
    return model


def hidden_states(model: LoraModel) -> tuple[torch.Tensor, torch.Tensor]:
    plan = TreePlan(grow([TOKENS]), model.device)
    with torch.inference_mode():
        return model.hidden(plan), model.sampled_hidden(plan)


def test_fused_layers_equal_single_layers(folder: Path) -> None:
    plain, fused = hidden_states(load_perturbed(folder))
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-5)


def test_layers_with_the_same_input_are_fused(folder: Path) -> None:
    model = load(folder)
    hidden_states(model)
    names = {id(m): n.rsplit(".", 1)[-1] for n, m in model.trained.named_modules()}
    names_by_bundle: dict[int, list[str]] = {}
    for layer in model.trained.modules():
        if isinstance(layer, LoraLinear):
            names_by_bundle.setdefault(id(layer.bundle), []).append(names[id(layer)])
    assert list(names_by_bundle.values()) == PER_LAYER * 3


def test_changed_adapter_is_copied_again(tiny_model: Path) -> None:
    model = load_perturbed(tiny_model)
    before = hidden_states(model)[1]
    with torch.no_grad():
        next(p for n, p in model.adapter.items() if "lora_A" in n).mul_(2)
    plain, fused = hidden_states(model)
    assert not torch.allclose(fused, before, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-5)


def test_layers_run_unfused_when_memory_is_short(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "COPY_SHARE", 0.0)
    plain, unfused = hidden_states(load_perturbed(tiny_model))
    assert torch.equal(plain, unfused)


def test_fused_layers_release_their_outputs(tiny_model: Path) -> None:
    model = load_perturbed(tiny_model)
    hidden_states(model)
    bundles = {id(m.bundle): m.bundle for m in model.trained.modules() if hasattr(m, "bundle")}
    assert bundles
    assert not any(b._outputs or b._x is not None or b.on for b in bundles.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_linear_equals_plain_linear(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(7, 40), torch.randn(24, 40), torch.randn(24)
    expected = x.to(dtype).double() @ weight.to(dtype).double().T + bias.to(dtype).double()
    rtol, atol = (1e-5, 1e-5) if dtype == torch.float32 else (0.01, 0.05)
    with torch.inference_mode():
        packed = pack(weight.to(dtype), 32)
        assert isinstance(packed, Packed) == can_pack(weight.to(dtype))
        assert can_pack(weight) == torch.backends.mkldnn.is_available()
        for result in (
            times(x.to(dtype), weight.to(dtype), bias.to(dtype)),
            packed_linear(x.to(dtype), packed, bias.to(dtype)),
        ):
            torch.testing.assert_close(result.double(), expected, rtol=rtol, atol=atol)
