"""Files beside the weights (tokenizer, chat template, configuration, Ollama Modelfile), and their
comparison with those of the base model."""

import json
import re
import shutil
from pathlib import Path

from gguf import GGUFReader
from tokenizers import Tokenizer

from engine.export.torch.gguf_file import FILE
from engine.models.file_checks import chat_template, read_json
from engine.protocol.problems import RolloutError
from engine.protocol.requests.exports import Sameness
from engine.rollout.rendering.chat import ChatFormat

TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
    "merges.txt", "tokenizer.model", "added_tokens.json", "preprocessor_config.json",
    "processor_config.json", "video_preprocessor_config.json",
)  # fmt: skip
GENERATION = "generation_config.json"
TEMPLATE = "chat_template.jinja"
LOCAL = ("_name_or_path", "name_or_path", "is_local", "local_files_only")
"""Configuration keys that contain local paths."""
IGNORED_KEYS = {*LOCAL, "dtype", "torch_dtype", "transformers_version", "quantization_config"}

CHATML = (
    "{{- range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}"
    "<|im_start|>assistant\n"
)
CHAT_PROBE = [
    {"role": "system", "content": "S1"},
    {"role": "user", "content": "U1"},
    {"role": "assistant", "content": "A1"},
    {"role": "user", "content": "U2"},
]
PROBES = ("Hello, world!", "  12 apples\n\tand 3.14 péche ½ 你好 🙂", "don't  STOP\r\n\n(now)")


def write_tokenizer(base: Path, folder: Path) -> None:
    for name in TOKENIZER:
        if not (base / name).is_file():
            continue
        if name == "tokenizer_config.json":
            _write_json(folder / name, _without_places(read_json(base / name)))
        else:
            shutil.copyfile(base / name, folder / name)
    (folder / TEMPLATE).write_text(chat_template(base))
    write_licence(base, folder)


def write_licence(base: Path, folder: Path) -> None:
    for file in (*base.glob("LICENSE*"), *base.glob("NOTICE*")):
        shutil.copyfile(file, folder / f"{file.name}.base")


def write_config(base: Path, folder: Path, dtype: str) -> None:
    config = _without_places(read_json(base / "config.json"))
    config.pop("torch_dtype", None)
    _write_json(folder / "config.json", {**config, "dtype": dtype})
    if (base / GENERATION).is_file():
        _write_json(folder / GENERATION, _without_places(read_json(base / GENERATION)))


def stop_tokens(folder: Path) -> list[int]:
    """Return a model's stop token ids from its generation configuration, else from its
    configuration; empty if neither has any."""
    for name in (GENERATION, "config.json"):
        eos = read_json(folder / name).get("eos_token_id")
        if eos is not None:
            return [eos] if isinstance(eos, int) else list(eos)
    return []


def write_modelfile(base: Path, folder: Path, weights: str) -> None:
    """Write an Ollama Modelfile into `folder` for the file `weights`: FROM, stop tokens, and the
    template if it is ChatML."""
    lines = [f"FROM {weights}"]
    lines += _ollama_template(base)
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    lines += [
        f"PARAMETER stop {json.dumps(tokenizer.id_to_token(token))}" for token in stop_tokens(base)
    ]
    (folder / "Modelfile").write_text("\n".join(lines) + "\n")


def _ollama_template(base: Path) -> list[str]:
    """Return TEMPLATE and SYSTEM lines if the model's chat template renders as ChatML; otherwise
    none, and Ollama uses the template in the GGUF file as far as it supports it."""
    wanted = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in CHAT_PROBE)
    with ChatFormat(base) as chat:
        try:
            if chat.render(CHAT_PROBE, []) != wanted + "<|im_start|>assistant\n":
                return []
            alone = chat.render(CHAT_PROBE[1:2], [])
        except RolloutError:
            return []
    lines = [f'TEMPLATE """{CHATML}"""']
    if found := re.match(r"<\|im_start\|>system\n(.*?)<\|im_end\|>\n", alone, re.DOTALL):
        lines.append(f'SYSTEM """{found[1]}"""')
    return lines


def compare(base: Path, folder: Path, kind: str) -> Sameness:
    """Compare tokenizer, template and settings of an export of this kind with the base model's."""
    if kind == "gguf":
        return _compare_gguf(base, folder)
    ours, theirs = (Tokenizer.from_file(str(place / "tokenizer.json")) for place in (base, folder))
    merged = kind == "merged"
    return Sameness(
        chat_template=chat_template(folder) == chat_template(base) != "",
        tokenizer=all(ours.encode(text).ids == theirs.encode(text).ids for text in PROBES)
        and ours.get_vocab() == theirs.get_vocab(),
        stop_tokens=not merged or stop_tokens(folder) == stop_tokens(base),
        config=not merged or _config_of(folder) == _config_of(base),
    )


def _compare_gguf(base: Path, folder: Path) -> Sameness:
    reader = GGUFReader(folder / FILE)

    def value(key: str) -> object:
        field = reader.get_field(key)
        return field.contents() if field else None

    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokens = value("tokenizer.ggml.tokens")
    assert isinstance(tokens, list)
    known = tokenizer.get_vocab()
    ends = [value(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    config = read_json(base / "config.json")
    arch = value("general.architecture")
    return Sameness(
        chat_template=value("tokenizer.chat_template") == chat_template(base),
        tokenizer=all(tokens[number] == token for token, number in known.items()),
        stop_tokens=[end for end in ends if end is not None] == stop_tokens(base)[:2],
        config=value(f"{arch}.block_count") == config["num_hidden_layers"],
    )


def _config_of(folder: Path) -> dict[str, object]:
    return {k: v for k, v in read_json(folder / "config.json").items() if k not in IGNORED_KEYS}


def _without_places(values: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if key not in LOCAL}


def _write_json(file: Path, value: dict[str, object]) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
