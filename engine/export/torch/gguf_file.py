"""Writer and reader of a merged model as one GGUF file for llama.cpp and Ollama.

Names and metadata are those of llama.cpp's own converter. Query and key rows of Llama and Mistral
are stored in the order of the original rotary layout (pairs adjacent); all others stay as they are.
"""

import contextlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType
from numpy.typing import NDArray
from transformers import AutoConfig, PreTrainedConfig

from engine.export.torch.experts import Factors
from engine.export.torch.merge import BaseWeights, Progress, merged
from engine.export.torch.vocabulary import add_vocabulary
from engine.protocol.problems import ModelError

FILE = "model.gguf"
ROPE_FACTORS = "rope_freqs.weight"


class Kind(NamedTuple):
    """GGUF name of an architecture, and whether its query and key rows are permuted."""

    arch: MODEL_ARCH
    permuted: bool


ARCHITECTURES = {
    "LlamaForCausalLM": Kind(MODEL_ARCH.LLAMA, True),
    "MistralForCausalLM": Kind(MODEL_ARCH.LLAMA, True),
    "Qwen2ForCausalLM": Kind(MODEL_ARCH.QWEN2, False),
    "Qwen3ForCausalLM": Kind(MODEL_ARCH.QWEN3, False),
}
TYPES = {
    "float32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "float16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "bfloat16": (GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}


class TensorNames:
    """Mapping between a model's tensor names and those of GGUF."""

    def __init__(self, folder: Path) -> None:
        self.config: PreTrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True)
        self.kind = kind_of(self.config)
        self._map = gguf.get_tensor_name_map(self.kind.arch, self.config.num_hidden_layers)

    def gguf(self, name: str) -> str:
        """Return the GGUF name of a weight. Raises ModelError if there is none."""
        found: str | None = self._map.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise _refusal(f"GGUF has no tensor name for its weight {name}")
        return found

    def heads(self, name: str) -> int:
        """Number of heads of a query or key weight whose rows GGUF reorders for this architecture;
        0 for all other tensors."""
        if not self.kind.permuted:
            return 0
        if ".q_proj." in name:
            return int(self.config.num_attention_heads)
        return int(self.config.num_key_value_heads) if ".k_proj." in name else 0


def kind_of(config: PreTrainedConfig) -> Kind:
    """Return the GGUF kind of an architecture. Raises ModelError if it is not supported."""
    name = (config.architectures or ["?"])[0]
    if name not in ARCHITECTURES:
        raise _refusal(f"its architecture {name} is not one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]


def write_gguf(
    base: BaseWeights,
    adapter: dict[str, Factors],
    folder: Path,
    dtype: str,
    title: str,
    stops: list[int],
    progress: Progress,
) -> None:
    """Write `model.gguf` with the adapter merged, with one tensor in memory at a time. `title` is
    the model's name in the file, `stops` are stop token ids."""
    names = TensorNames(base.folder)
    with contextlib.closing(
        GGUFWriter(folder / FILE, gguf.MODEL_ARCH_NAMES[names.kind.arch])
    ) as writer:
        _add_shape(writer, names.config, dtype, title)
        add_vocabulary(writer, base.folder, names.config.vocab_size, stops)
        factors = rope_factors(names.config)
        if factors is not None:
            writer.add_tensor_info(ROPE_FACTORS, factors.shape, factors.dtype, factors.nbytes)
        kinds = {name: _type(base.shape(name), dtype) for name in base.names}
        for name, kind in kinds.items():
            _announce(writer, names.gguf(name), base.shape(name), kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        if factors is not None:
            writer.write_tensor_data(factors)
        for done, (name, weight) in enumerate(merged(base, adapter), 1):
            rows = permuted(weight.numpy(), names.heads(name))
            writer.write_tensor_data(_encode(rows, kinds[name], name))
            progress(done, len(kinds))


class GgufWeights:
    """Tensors of a GGUF file by the base model's names, with rows in the base model's order."""

    def __init__(self, file: Path, base: Path) -> None:
        self._names = TensorNames(base)
        self._tensors = {tensor.name: tensor for tensor in GGUFReader(file).tensors}

    def base_names(self, known: Iterable[str]) -> set[str]:
        """Names in the base model of the tensors in the file; the GGUF name for a tensor that
        matches none of `known`, the base model's names."""
        ours = {self._names.gguf(name): name for name in known}
        expected = {ROPE_FACTORS} if rope_factors(self._names.config) is not None else set()
        return {ours.get(name, name) for name in self._tensors.keys() - expected}

    def tensor(self, name: str) -> tuple[NDArray[np.generic], str]:
        """Return raw rows [O, bytes or values] and the name of their type."""
        tensor = self._tensors[self._names.gguf(name)]
        data = np.asarray(tensor.data)
        if heads := self._names.heads(name):
            halves = data.reshape(heads, len(data) // heads // 2, 2, *data.shape[1:])
            data = halves.swapaxes(1, 2).reshape(data.shape)
        return data, tensor.tensor_type.name


def permuted(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorder query or key rows for the original rotary layout: in each head, rows i and i + half,
    which rotate together, become adjacent."""
    if not heads:
        return rows
    halves = rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def rope_factors(config: PreTrainedConfig) -> NDArray[np.float32] | None:
    """Factors of Llama 3.1's rotary scaling [head / 2], one per wavelength; None for models with
    another scaling or none (transformers, modeling_rope_utils: llama3)."""
    rope = config.rope_parameters or {}
    if rope.get("rope_type") != "llama3":
        return None
    size = _head_size(config)
    waves = 2 * math.pi * rope["rope_theta"] ** (np.arange(0, size, 2) / size)
    old, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((old / waves - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


def _add_shape(writer: GGUFWriter, config: PreTrainedConfig, dtype: str, title: str) -> None:
    kind, file_type = TYPES[dtype]
    head, rope = _head_size(config), config.rope_parameters or {}
    window = getattr(config, "sliding_window", None)
    context = config.max_position_embeddings
    writer.add_name(title)
    writer.add_file_type(file_type)
    if kind is GGMLQuantizationType.Q8_0:
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(min(context, window) if window else context)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(rope.get("rope_theta", 10_000.0))
    scaling = rope.get("rope_type", "default")
    if scaling not in ("default", "llama3"):
        raise _refusal(f"its RoPE scaling {scaling} is not supported")


def _head_size(config: PreTrainedConfig) -> int:
    head: int | None = getattr(config, "head_dim", None)
    return head or config.hidden_size // config.num_attention_heads


def _type(shape: tuple[int, ...], dtype: str) -> GGMLQuantizationType:
    """Return the GGUF type: float32 for vectors; Q8_0 needs rows in blocks of 32, else float16."""
    kind, _ = TYPES[dtype]
    if len(shape) < 2:
        return GGMLQuantizationType.F32
    if kind is GGMLQuantizationType.Q8_0 and shape[-1] % 32:
        return GGMLQuantizationType.F16
    return kind


def _announce(
    writer: GGUFWriter, name: str, shape: tuple[int, ...], kind: GGMLQuantizationType
) -> None:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = math.prod(shape) // block * size
    writer.add_tensor_info(name, shape, np.dtype(np.float32), count, raw_dtype=kind)


def _encode(rows: NDArray[np.float32], kind: GGMLQuantizationType, name: str) -> NDArray[Any]:
    """Convert rows to a GGUF type. Raises ModelError if a value overflows float16."""
    with np.errstate(over="ignore"):
        encoded = gguf.quants.quantize(rows, kind)
    if kind is GGMLQuantizationType.F16 and not np.isfinite(encoded).all():
        raise ModelError.of(
            "export.overflow",
            f"{name} has a value that does not fit into float16.",
            "Export in bfloat16 or float32.",
        )
    return np.ascontiguousarray(encoded)


def _refusal(why: str) -> ModelError:
    return ModelError.of(
        "export.gguf_architecture",
        f"This model cannot be written as GGUF here: {why}.",
        "Export the model merged, or set ATELIER_LLAMA_CPP to a llama.cpp checkout with "
        "convert_hf_to_gguf.py.",
    )
