"""Merged exports of models that read images: every weight is verified, and the exported files give
the trained model's log-probs on a prompt with an image."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from engine.export.torch.logprobs import load_exported, load_trained
from engine.export.torch.merge import BaseWeights, read_adapter
from tests.engine.export.test_torch import CPU, check, passages, write
from tests.engine.policy.exactness import loaded
from tests.support.seeing import KINDS, PLACEHOLDER, image_input, save_model, save_processor

DENSE = [kind for kind in KINDS if not kind.endswith("moe")]


@torch.inference_mode()
def logprobs(model: PreTrainedModel, folder: Path) -> Tensor:
    """Log-probs [T, V] behind an image."""
    image = image_input(folder, 1, 3, (1, 4, 6))
    tokens = torch.tensor([[5, 6, 302] + [PLACEHOLDER] * image.count + [303, 7, 8, 9]])
    stored = load_file(image.file)
    logits = model(
        input_ids=tokens,
        pixel_values=stored["pixels"],
        image_grid_thw=stored["grid"][None],
        mm_token_type_ids=(tokens == PLACEHOLDER).int(),
        use_cache=False,
    ).logits
    return logits[0, -4:].log_softmax(-1)


@pytest.mark.parametrize("kind", DENSE)
def test_merged_weights_see_what_the_trained_model_sees(kind: str, tmp_path: Path) -> None:
    base = save_model(kind, tmp_path / "base")
    save_processor(base)
    loaded(base).save_adapter(tmp_path / "adapter", "base")
    factors = read_adapter(tmp_path / "adapter", BaseWeights(base))
    out = write(base, factors, tmp_path / "out", "merged", "float32")
    checked = check(base, factors, out, "merged", "float32")
    assert checked.good
    assert checked.adapted == len(factors) > 0
    assert (out / "preprocessor_config.json").is_file()
    trained = load_trained(base, tmp_path / "adapter", CPU)
    exported = load_exported(out, "merged", base, CPU)
    ours, theirs = (logprobs(model, tmp_path / "images") for model in (trained, exported))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)
    assert passages(out) == passages(base)
