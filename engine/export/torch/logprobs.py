"""Log-probs and greedy continuations with plain transformers and PEFT.

Both sides of a comparison are computed here from files alone, each in a separate process.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from gguf import GGUFReader
from peft import PeftModel
from pydantic import BaseModel, ConfigDict
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    GenerationConfig,
    GgufConfig,
    PreTrainedModel,
)
from transformers.utils import logging

from engine.export.torch.gguf_file import FILE, ROPE_FACTORS
from engine.export.torch.merge import BaseWeights, Progress
from engine.models.architectures import reads_images
from engine.models.file_checks import read_json
from engine.protocol.problems import ModelError

TOP = 5
"""Number of top tokens stored per greedy position."""
BATCH_TOKENS = 4096
ROOM = 1.25
"""Required memory, as a multiple of the size of the weights."""


class Passage(BaseModel):
    """A stored sequence for the comparison."""

    model_config = ConfigDict(frozen=True)

    tokens: list[int]
    prompt: int
    """Number of prompt tokens; 0 without a prompt to continue."""


class LogProbs(BaseModel):
    """Log-probs of P passages, one list each."""

    logprobs: list[list[float]]
    """Natural log-probability of every token but the first."""
    greedy: list[list[int]]
    """Greedy continuation with its stop token; empty without a prompt."""
    top: list[list[list[tuple[int, float]]]]
    """Top tokens and their log-probs per greedy position."""


class Computing(BaseModel):
    """Device and precision; the same for both sides."""

    model_config = ConfigDict(frozen=True)

    device: str
    dtype: Literal["float32", "bfloat16"]


def pick_computing(base: Path) -> Computing:
    """Choose device and precision to compute a model: float32 if memory allows, else bfloat16; a
    GPU if it has room. Raises ModelError if no device has enough memory for the model."""
    numbers = BaseWeights(base).count()
    free = {"cpu": psutil.virtual_memory().available}
    if torch.cuda.is_available():
        free = {"cuda": torch.cuda.mem_get_info()[0], **free}
    for dtype, width in (("float32", 4), ("bfloat16", 2)):
        for device, room in free.items():
            if numbers * width * ROOM < room:
                return Computing(device=device, dtype=dtype)  # type: ignore[arg-type]
    most = max(free.values())
    raise ModelError.of(
        "export.no_memory",
        f"Verifying this export needs {numbers * 2 * ROOM / 1e9:.1f} GB of memory; "
        f"{most / 1e9:.1f} GB are free.",
        "Free memory (stop a run, for example) and export again.",
    )


def load_trained(base: Path, adapter: Path, computing: Computing) -> PreTrainedModel:
    """Load the base model with the adapter, not merged."""
    return PeftModel.from_pretrained(_load(base, computing), adapter).eval()  # type: ignore[return-value]


def load_exported(folder: Path, kind: str, base: Path, computing: Computing) -> PreTrainedModel:
    """Load the exported files as another program would; `base` is needed for an adapter alone."""
    if kind == "adapter":
        return load_trained(base, folder, computing)
    if kind == "gguf":
        quantization = GgufConfig(dequantize=True)
        model = _load(folder, computing, gguf_file=FILE, quantization_config=quantization)
        _stretch(model, folder / FILE)
        return model
    return _load(folder, computing)


def _stretch(model: PreTrainedModel, file: Path) -> None:
    """Apply Llama 3.1's rotary factors from the file, as llama.cpp does, because transformers' GGUF
    reader ignores them."""
    factors = next((t.data for t in GGUFReader(file).tensors if t.name == ROPE_FACTORS), None)
    if factors is not None:
        rotary = model.get_decoder().rotary_emb
        rotary.inv_freq /= torch.tensor(factors, device=rotary.inv_freq.device)


def _load(folder: Path, computing: Computing, **options: Any) -> PreTrainedModel:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        images = reads_images(read_json(folder / "config.json"))
        kind = AutoModelForImageTextToText if images else AutoModelForCausalLM
        model = kind.from_pretrained(
            folder,
            dtype=getattr(torch, computing.dtype),
            trust_remote_code=False,
            local_files_only=True,
            **({} if "gguf_file" in options else {"use_safetensors": True}),
            **options,
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError.of(
            "export.not_loadable",
            f"transformers cannot load the exported files: {str(error).splitlines()[0][:300]}",
            "Try another format, and please report this error.",
            detail=str(error)[:4000],
        ) from error
    return model.eval().to(computing.device)  # type: ignore[no-any-return]


@torch.inference_mode()
def greedy_continuations(
    model: PreTrainedModel,
    passages: list[Passage],
    stops: list[int],
    most_new: int,
    progress: Progress,
) -> LogProbs:
    """Return log-probs of all passages, and greedy continuations of their prompts, of up to
    `most_new` tokens or to a stop token."""
    total = 2 * len(passages)
    logprobs: list[list[float]] = [[] for _ in passages]
    done = 0
    for rows in _batches([len(one.tokens) for one in passages], 0):
        found = _logprobs(model, [passages[row].tokens for row in rows])
        for row, values in zip(rows, found, strict=True):
            logprobs[row] = values
        done += len(rows)
        progress(done, total)
    greedy: list[list[int]] = [[] for _ in passages]
    top: list[list[list[tuple[int, float]]]] = [[] for _ in passages]
    for rows in _batches([one.prompt for one in passages], most_new):
        prompts = [passages[row].tokens[: passages[row].prompt] for row in rows]
        if prompts[0]:
            continued = _continue(model, prompts, stops, most_new)
            for row, (tokens, likeliest) in zip(rows, continued, strict=True):
                greedy[row], top[row] = tokens, likeliest
        done += len(rows)
        progress(done, total)
    return LogProbs(logprobs=logprobs, greedy=greedy, top=top)


def _batches(lengths: list[int], more: int) -> Iterator[list[int]]:
    """Yield batches of row indexes, shortest rows first, of up to BATCH_TOKENS padded tokens each;
    `more` is added to each length. Rows of length 0 get a batch of their own."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        full = (lengths[row] + more) * (len(batch) + 1) > BATCH_TOKENS
        if batch and (full or not lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _padded(rows: list[list[int]], left: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return tokens padded with 0 (on the left if `left`, else on the right) and the mask of real
    tokens, each [B, T]."""
    longest = max(map(len, rows))
    tokens_BT = torch.zeros(len(rows), longest, dtype=torch.long)
    mask_BT = torch.zeros_like(tokens_BT)
    for row, tokens in enumerate(rows):
        place = slice(longest - len(tokens), longest) if left else slice(len(tokens))
        tokens_BT[row, place] = torch.tensor(tokens)
        mask_BT[row, place] = 1
    return tokens_BT.to(device), mask_BT.to(device)


def _logprobs(model: PreTrainedModel, rows: list[list[int]]) -> list[list[float]]:
    tokens_BT, mask_BT = _padded(rows, left=False, device=model.device)
    logits_BTV = model(input_ids=tokens_BT, attention_mask=mask_BT, use_cache=False).logits
    found = []
    for row, tokens in enumerate(rows):
        length = len(tokens)
        logits_TV = logits_BTV[row, : length - 1].float()
        chosen_T = logits_TV.gather(1, tokens_BT[row, 1:length, None])[:, 0]
        found.append((chosen_T - logits_TV.logsumexp(dim=-1)).tolist())
    return found


def _continue(
    model: PreTrainedModel, prompts: list[list[int]], stops: list[int], most_new: int
) -> list[tuple[list[int], list[list[tuple[int, float]]]]]:
    tokens_BT, mask_BT = _padded(prompts, left=True, device=model.device)
    # the model's own would add its repetition penalty and the like
    model.generation_config = GenerationConfig(
        do_sample=False,
        max_new_tokens=most_new,
        eos_token_id=stops or None,
        pad_token_id=stops[0] if stops else 0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    output = model.generate(input_ids=tokens_BT, attention_mask=mask_BT)
    new_BT = output.sequences[:, tokens_BT.shape[1] :].tolist()
    scores_TBV = [logits_BV.float().log_softmax(-1) for logits_BV in output.logits]
    return [
        _until_stop(tokens, [scores_BV[row] for scores_BV in scores_TBV], stops)
        for row, tokens in enumerate(new_BT)
    ]


def _until_stop(
    tokens: list[int], scores_TV: list[Tensor], stops: list[int]
) -> tuple[list[int], list[list[tuple[int, float]]]]:
    ends = [place for place, token in enumerate(tokens) if token in stops]
    tokens = tokens[: ends[0] + 1] if ends else tokens
    top = []
    for scores_V in scores_TV[: len(tokens)]:
        values, ids = scores_V.topk(min(TOP, len(scores_V)))
        top.append(list(zip(ids.tolist(), values.tolist(), strict=True)))
    return tokens, top
