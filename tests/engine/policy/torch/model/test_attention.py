"""Attention in two parts is attention."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.policy.torch.model.attention import PathAttention, band


@pytest.mark.parametrize(
    ("siblings", "own", "path"), [(1, 1, 1), (3, 5, 7), (8, 63, 300), (2, 170, 30)]
)
@pytest.mark.parametrize("shared", [1, 3])
def test_path_and_own_part_make_the_whole(siblings, own, path, shared):
    torch.manual_seed(0)
    heads, size = 2, 16

    def made(*shape):
        return torch.randn(*shape, dtype=torch.double, requires_grad=True)

    query = made(siblings, heads * shared, own, size)
    inputs = query, made(siblings, heads, own, size), made(siblings, heads, own, size)
    above = made(heads, path, size), made(heads, path, size)
    merged = PathAttention.apply(*inputs, *above, 0.3)
    key, value = (
        torch.cat([up.expand(siblings, -1, -1, -1), down], 2).repeat_interleave(shared, 1)
        for up, down in zip(above, inputs[1:], strict=True)
    )
    mask = band(own, path, None, torch.device("cpu"))
    whole = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.3)
    assert torch.allclose(merged, whole, atol=1e-6)
    slope = torch.randn_like(whole)
    for ours, plain in zip(
        torch.autograd.grad(merged, [*inputs, *above], slope),
        torch.autograd.grad(whole, [*inputs, *above], slope),
        strict=True,
    ):
        assert torch.allclose(ours, plain, atol=1e-5)
