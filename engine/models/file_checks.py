"""Checks of the untrusted files in a model folder: config, safetensors headers, template.

A folder may come from anywhere. Nothing in it may cause Atelier to read another file, run code,
load a kernel from a hub, or allocate memory by a number in a file.
"""

import math
import stat
import struct
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.protocol.json_text import parse_json
from engine.protocol.problems import ModelError

MOST_CONFIG_BYTES = 16 * 2**20
MOST_HEADER_BYTES = 100_000_000
"""Maximum header size by the safetensors format."""
MOST_TEMPLATE_BYTES = 2**20
WIDTH_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F4": 4,
    "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
"""Bits of one element, by the type names of safetensors."""
ATTENTION_KEYS = ("_attn_implementation", "attn_implementation", "_attn_implementation_internal")
OWN_ATTENTION = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
"""Attention implementations within transformers; other names refer to kernels on a hub."""
INDEX = "model.safetensors.index.json"
FEED_FORWARD = {"mlp", "feed_forward", "shared_mlp", "block_sparse_moe", "gate_proj"}
"""Parts of the names of feed-forward layers, which get no adapter in a mixture of experts."""
STACKED = {"input_linear", "output_linear"}
"""Parts of the names of stacked experts in files without a part `experts` (Granite)."""
FIRST, SECOND = (".gate_proj", ".w1"), (".up_proj", ".w3")
"""Ends of the names of gate and up projections of single experts, which transformers stacks."""
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_k")


def check_folder(folder: Path, name: str, weights: bool = True) -> Path:
    """Return the folder if its model can be trained: it has safetensors weights (with `weights`
    False it may lack them: a cluster has them), tokenizer and chat template, and no code of its
    own. Raises ModelError otherwise, in which the model is called `name`."""
    if not (folder / "config.json").is_file():
        raise ModelError.of(
            "model.not_a_model",
            f"{name} has no config.json.",
            "Use a folder saved by transformers, a Hugging Face model id, or a starter model.",
            where=str(folder),
        )
    if weights:
        _refuse_other_weights(folder, name)
    _refuse_adapter(folder, name)
    for file in ("config.json", "tokenizer_config.json"):
        _refuse_code(folder / file, name)
    _refuse_hub_kernel(folder / "config.json", name)
    if not (folder / "tokenizer.json").is_file():
        raise ModelError.of(
            "model.no_tokenizer",
            f"{name} has no tokenizer.json.",
            "Save the fast tokenizer into the model's folder.",
            where=str(folder),
        )
    if not chat_template(folder):
        raise ModelError.of(
            "model.no_chat_template",
            f"{name} has no chat template, so chat messages cannot be turned into tokens.",
            "Use the instruct version of the model, or put a chat_template.jinja into its folder.",
            where=str(folder),
        )
    return folder


def chat_template(folder: Path) -> str:
    """Return the Jinja chat template of a model; empty if it has none. Raises ModelError for a file
    that cannot be read."""
    if (file := folder / "chat_template.jinja").exists():
        return _read(file, MOST_TEMPLATE_BYTES).decode("utf-8", "replace")
    config = read_json(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(config, list):  # several named ones: tools use falls back to the default
        named = [one for one in config if isinstance(one, dict) and one.get("name") == "default"]
        config = named[0].get("template") if named else ""
    return config if isinstance(config, str) else ""


def stop_tokens(folder: Path) -> list[int]:
    """Token ids that end an answer, by `generation_config.json` or else `config.json`; empty if
    neither names one. Raises ModelError for a file that cannot be read."""
    for file in ("generation_config.json", "config.json"):
        config = read_json(folder / file)
        found = text_config(config).get("eos_token_id", config.get("eos_token_id"))
        ids = found if isinstance(found, list) else [found]
        if stops := [one for one in ids if type(one) is int]:
            return stops
    return []


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if there is no file. Raises ModelError."""
    if not file.exists():
        return {}
    try:
        value = parse_json(_read(file, MOST_CONFIG_BYTES), unique=False)
    except ValueError as error:
        raise _unreadable(file, str(error)) from error
    if not isinstance(value, dict):
        raise _unreadable(file, "it is not a JSON object")
    return value


def shape_counts(folder: Path) -> dict[str, int]:
    """Return counts by name from the safetensors headers and config.json: `parameters` (all),
    `linear` (parameters of the linear layers that compute a token; of a mixture's experts only the
    active share), `lora_sides` (Σ in + out features of the layers that get a LoRA adapter),
    `expert_sides` (the same of the projections of all experts) and `active_expert_sides` (of those
    that compute a token), and the config's numbers of layers and heads and its widths. Raises
    ModelError."""
    files = tuple((file, *_version(file)) for file in sorted(folder.glob("*.safetensors")))
    return dict(_counts(folder / "config.json", _version(folder / "config.json"), files))


@lru_cache(maxsize=256)
def _counts(
    config_file: Path, _version: tuple[int, int], files: tuple[tuple[Path, int, int], ...]
) -> dict[str, int]:
    return count_shapes(config_file, (header(file) for file, _, _ in files))


def count_shapes(config_file: Path, headers: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return the counts of `shape_counts` from a config.json and checked safetensors headers.
    Raises ModelError."""
    config = text_config(read_json(config_file))
    shapes = [(name, one["shape"]) for tensors in headers for name, one in tensors.items()]
    share = active_share(config)
    mixture = any(_of_experts(name, shape) for name, shape in shapes)
    gated = any(_of_experts(name, shape) and _ends(name, FIRST) for name, shape in shapes)
    total = linear = sides = expert_sides = 0
    for name, shape in shapes:
        size, parts = math.prod(shape), set(name.split("."))
        total += size
        if _of_experts(name, shape):
            linear += int(size * share)
            again = gated and _ends(name, SECOND)
            expert_sides += 0 if "bias" in name else _expert_sides(shape, again)
        elif len(shape) == 2 and "embed" not in name and "lm_head" not in name:
            linear += size
            sides += 0 if mixture and FEED_FORWARD & parts else sum(shape)

    def number(*names: str, default: int | None = None) -> int:
        """Return the first of these settings that the config has, else `default`; it must be a
        positive integer."""
        found = next((config[name] for name in names if config.get(name) is not None), default)
        if isinstance(found, bool) or not isinstance(found, int) or not 0 < found < 2**31:
            raise _unreadable(
                config_file, f"{names[0]} is {str(found)[:40]}, not a positive number"
            )
        return found

    heads, hidden = number("num_attention_heads", "n_head"), number("hidden_size", "n_embd")
    key_heads = number("num_key_value_heads", default=heads)
    head_size = number("head_dim", default=max(1, hidden // heads))
    if "qk_nope_head_dim" in config:  # latent attention (MLA) caches the expanded keys
        key_heads, head_size = heads, number("qk_nope_head_dim") + number("qk_rope_head_dim")
    return {
        "parameters": total,
        "linear": linear,
        "lora_sides": sides,
        "expert_sides": expert_sides,
        "active_expert_sides": int(expert_sides * share),
        "query_heads": heads,
        "key_heads": key_heads,
        "head_size": head_size,
        "layers": number("num_hidden_layers", "n_layer", default=_named_layers(config)),
        "hidden": hidden,
        "intermediate": number("intermediate_size", "n_inner", default=4 * hidden),
        "vocabulary": number("vocab_size"),
    }


def _of_experts(name: str, shape: list[int]) -> bool:
    """Whether a tensor of a file is a weight of routed experts."""
    parts = set(name.split("."))
    return "experts" in parts or (len(shape) == 3 and bool(STACKED & parts))


def _ends(name: str, ends: tuple[str, ...]) -> bool:
    return name.removesuffix(".weight").endswith(ends)


def _expert_sides(shape: list[int], again: bool) -> int:
    """Σ in + out features of an expert's projection in a tensor [out, in], or of stacked ones.
    `again`: whether its inputs were counted, with the gate projection that it is stacked with."""
    if len(shape) == 3:
        return shape[0] * (shape[1] + shape[2])
    return shape[0] if again else sum(shape)


def _named_layers(config: dict[str, Any]) -> int | None:
    """Number of layers of a hybrid model whose config lists their kinds in place of a number."""
    for name in ("layers_block_type", "hybrid_override_pattern"):
        if isinstance(kinds := config.get(name), list | str):
            return len(kinds)
    return None


def active_share(config: dict[str, Any]) -> float:
    """Return the share of a mixture's experts that compute a token; 1 without experts."""

    def first(names: tuple[str, ...]) -> int:
        found = next((config[name] for name in names if config.get(name)), None)
        return found if type(found) is int and found > 0 else 0

    active, experts = first(EXPERTS_PER_TOKEN), first(EXPERTS)
    return min(1.0, active / experts) if active and experts else 1.0


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the language model's settings in a config; multimodal models nest them in
    `text_config`."""
    text = config.get("text_config")
    return {**config, **(text if isinstance(text, dict) else {})}


def quantisation(config: dict[str, Any]) -> str:
    """Return the method by which a model's weights are quantised; empty if they are not. Shapes in
    the files of a quantised model are those of packed numbers, not of parameters."""
    found = config.get("quantization_config")
    if found is None:
        return ""
    method = found.get("quant_method") if isinstance(found, dict) else None
    return str(method)[:40] if method else "unknown method"


def header(file: Path) -> dict[str, Any]:
    """Return the header of a safetensors file: `dtype`, `shape`, `data_offsets` by tensor name.
    Raises ModelError if it does not match the file: the bytes of all tensors must be contiguous,
    lie within the file, and match their shapes."""
    size = _regular(file).st_size
    with file.open("rb") as source:
        first = source.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else -1
        if not 0 < length <= min(size - 8, MOST_HEADER_BYTES):
            raise _unreadable(file, "its header is cut off or longer than the file")
        text = source.read(length)
    try:
        found = parse_json(text)
        if not isinstance(found, dict):
            raise ValueError("its header is not a JSON object")
        found.pop("__metadata__", None)
        end = checked_end(found)
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(file, f"its header is damaged ({error})") from error
    if end != size - 8 - length:
        raise _unreadable(
            file, f"it has {size - 8 - length} bytes of weights, but its header lists {end}"
        )
    return found


def checked_end(tensors: dict[str, Any]) -> int:
    """Check the entries of a safetensors header, which must be contiguous; returns the offset at
    which the last one ends. Raises ValueError, KeyError, TypeError."""
    end = 0
    for name, entry in sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]):
        end = _checked(name, entry, end)
    return end


def _checked(name: str, entry: dict[str, Any], begin: int) -> int:
    """Check one tensor's entry; returns the offset at which the tensor ends. Raises ValueError,
    KeyError, TypeError."""
    shape, (start, end) = entry["shape"], entry["data_offsets"]
    sides = [side for side in shape if type(side) is int and 0 <= side < 2**48]
    if len(sides) != len(shape) or type(start) is not int or type(end) is not int:
        raise ValueError(f"the shape or offsets of {name[:80]} are invalid")
    bits = math.prod(sides) * WIDTH_BITS[entry["dtype"]]
    if start != begin or bits != 8 * (end - start):
        raise ValueError(f"the bytes of {name[:80]} have the wrong position or size")
    return int(end)


def _refuse_other_weights(folder: Path, name: str) -> None:
    if not any(folder.glob("*.safetensors")):
        others = [p.name for p in folder.iterdir() if p.suffix in {".bin", ".pt", ".pth", ".gguf"}]
        found = (
            f" It contains {others[0]}, which is not loaded: such files can run code."
            if others
            else ""
        )
        raise ModelError.of(
            "model.not_safetensors",
            f"{name} has no safetensors weights.{found}",
            "Save the model with `save_pretrained(..., safe_serialization=True)`.",
            where=str(folder),
        )
    named = read_json(folder / INDEX).get("weight_map", {})
    files = set(named.values()) if isinstance(named, dict) else {None}
    for file in files:
        if (
            not isinstance(file, str)
            or Path(file).name != file
            or Path(file).suffix != ".safetensors"
        ):
            raise ModelError.of(
                "model.outside_folder",
                f"{name} lists weights that are not safetensors files in its folder: "
                f"{str(file)[:80]}.",
                "Save the model again with `save_pretrained(..., safe_serialization=True)`.",
                where=str(folder / INDEX),
            )


def _refuse_adapter(folder: Path, name: str) -> None:
    """Refuse a folder with an adapter's config: transformers would load the base model that it
    names, from any place."""
    if (folder / "adapter_config.json").exists():
        raise ModelError.of(
            "model.holds_adapter",
            f"{name} contains both a model and an adapter (adapter_config.json).",
            "Move the adapter to another folder and start from it with `train --from`.",
            where=str(folder / "adapter_config.json"),
        )


def _refuse_code(file: Path, name: str) -> None:
    if "auto_map" in read_json(file):
        raise ModelError.of(
            "model.remote_code",
            f"{name} needs its own code ({file.name} has auto_map), which Atelier does not run.",
            "Use a model whose architecture is part of transformers.",
            where=str(file),
        )


def _refuse_hub_kernel(file: Path, name: str) -> None:
    """Refuse a config that names an attention kernel to be downloaded."""
    waiting: list[Any] = [read_json(file)]
    while waiting:
        value = waiting.pop()
        waiting += (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        )
        for key in ATTENTION_KEYS if isinstance(value, dict) else ():
            if (kernel := value.get(key)) is not None and kernel not in OWN_ATTENTION:
                raise ModelError.of(
                    "model.hub_kernel",
                    f"{name} needs its own attention code ({key} = {str(kernel)[:80]}), which "
                    "Atelier does not run.",
                    f"Remove {key} from its config.json.",
                    where=str(file),
                )


def _read(file: Path, most_bytes: int) -> bytes:
    """Return the bytes of a regular file of limited size. Raises ModelError."""
    if _regular(file).st_size > most_bytes:
        raise _unreadable(file, f"it is larger than {most_bytes // 2**20} MB")
    try:
        return file.read_bytes()
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error)) from error


def _regular(file: Path) -> Any:
    """Return the status of a regular file (links are followed, since a hub's cache has them)."""
    try:
        status = file.stat()
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error)) from error
    if not stat.S_ISREG(status.st_mode):
        raise _unreadable(file, "it is not a regular file")
    return status


def _version(file: Path) -> tuple[int, int]:
    status = _regular(file)
    return status.st_mtime_ns, status.st_size


def _unreadable(file: Path, why: str) -> ModelError:
    return ModelError.of(
        "model.unreadable",
        f"{file.name} cannot be read: {why[:300]}.",
        "Download or save the model again.",
        where=str(file),
    )
