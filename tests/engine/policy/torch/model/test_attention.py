"""Attention over shared path and own part, merged."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.policy.torch.model.attention import PathAttention, band


@pytest.mark.parametrize(
    ("siblings", "own", "path"), [(1, 1, 1), (3, 5, 7), (8, 63, 300), (2, 170, 30)]
)
@pytest.mark.parametrize("shared", [1, 3])
def test_merged_attention_and_gradients_equal_full_attention(siblings, own, path, shared):
    torch.manual_seed(0)
    heads, size = 2, 16

    def random_tensor(*shape):
        return torch.randn(*shape, dtype=torch.double, requires_grad=True)

    query = random_tensor(siblings, heads * shared, own, size)
    inputs = (
        query,
        random_tensor(siblings, heads, own, size),
        random_tensor(siblings, heads, own, size),
    )
    path_inputs = random_tensor(heads, path, size), random_tensor(heads, path, size)
    merged = PathAttention.apply(*inputs, *path_inputs, 0.3)
    key, value = (
        torch.cat([up.expand(siblings, -1, -1, -1), down], 2).repeat_interleave(shared, 1)
        for up, down in zip(path_inputs, inputs[1:], strict=True)
    )
    mask = band(own, path, None, torch.device("cpu"))
    full = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.3)
    assert torch.allclose(merged, full, atol=1e-6)
    slope = torch.randn_like(full)
    for ours, plain in zip(
        torch.autograd.grad(merged, [*inputs, *path_inputs], slope),
        torch.autograd.grad(full, [*inputs, *path_inputs], slope),
        strict=True,
    ):
        assert torch.allclose(ours, plain, atol=1e-5)
