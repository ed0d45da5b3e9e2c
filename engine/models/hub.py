"""Hugging Face hub: search by words, and details of one model from its page and files.

Every function asks the network and blocks. `HF_ENDPOINT` and `HF_TOKEN` are honoured; a `token` of
None means the one that huggingface_hub finds (HF_TOKEN, or the file of `hf auth login`).
"""

import fnmatch
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.models.architectures import architecture_problem
from engine.models.file_checks import (
    INDEX,
    MOST_CONFIG_BYTES,
    MOST_TEMPLATE_BYTES,
    WIDTH_BITS,
    chat_template,
    check_folder,
    checked_end,
    count_shapes,
    quantisation,
    read_json,
    text_config,
)
from engine.models.registry import hub_models
from engine.protocol.problems import ModelError, Problem
from engine.protocol.requests.models import HubFile, HubModel

MOST_FOUND = 30
"""Maximum number of results of a search."""
MOST_LISTED = 60
"""Models that the hub is asked for; those that are no language models are left out."""
KINDS = (None, "text-generation", "image-text-to-text", "any-to-any")
"""Tasks of the hub whose models can chat."""
REPORTED = ("safetensors", "gated", "downloads", "likes", "config", "lastModified", "tags")
"""Fields of a search result, beside the task."""
OTHER_FILES = ("*.json", "*.jinja", "tokenizer*", "LICENSE*", "README.md")
"""Files of a download beside the weights."""
READ = {
    "config.json": MOST_CONFIG_BYTES,
    "tokenizer_config.json": MOST_CONFIG_BYTES,
    "chat_template.jinja": MOST_TEMPLATE_BYTES,
    INDEX: MOST_CONFIG_BYTES,
}
"""Files that the checks read, and their size limits."""
MOST_HEADERS = 64
"""Maximum number of weight files whose headers are read before a download."""
CODE = "models.hub_failed"


@dataclass(frozen=True)
class HubCard:
    """Model of the hub, read without its weights."""

    summary: HubModel
    commit: str
    files: tuple[HubFile, ...]
    config: dict[str, Any]
    template: str | None
    """Chat template; empty if it has none, None if access to its files is refused."""
    counts: dict[str, int] | None
    """Counts as by `shape_counts`; None if they cannot be read."""
    problem: Problem | None
    """Why it cannot be trained."""


def search_hub(words: str, token: str | None = None) -> list[HubModel]:
    """Search language models with safetensors by words, the most downloaded first. Raises
    ModelError."""
    from huggingface_hub import HfApi

    with hub_problems(words):
        found = HfApi(token=token).list_models(
            search=words,
            filter="safetensors",
            sort="downloads",
            limit=MOST_LISTED,
            expand=[*REPORTED, "pipeline_tag"],  # type: ignore[list-item]
        )
        known = hub_models()
        models = [_summary(one, known) for one in found if one.pipeline_tag in KINDS]
    return models[:MOST_FOUND]


def read_card(name: str, token: str | None = None) -> HubCard:
    """Read a hub model's page, configuration, chat template and safetensors headers. Raises
    ModelError."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError

    with hub_problems(name):
        api = HfApi(token=token)
        about = api.model_info(name, files_metadata=True)
        commit = about.sha or "main"
        files = wanted_files({one.rfilename: one.size or 0 for one in about.siblings or ()})
        with tempfile.TemporaryDirectory(prefix="atelier-model-") as scratch:
            folder = Path(scratch)
            try:
                for one in files:
                    limit = READ.get(one.name)
                    text = _read(api, name, one.name, commit, limit, token) if limit else b""
                    (folder / one.name).write_bytes(text)
            except GatedRepoError as error:
                summary = _summary(about, hub_models())
                return HubCard(summary, commit, files, {}, None, None, _gated(name, error))
            if any(one.rfilename == "adapter_config.json" for one in about.siblings or ()):
                (folder / "adapter_config.json").touch()
            if not any(file.name.endswith(".safetensors") for file in files):
                for one in about.siblings or ():  # what it has instead
                    if Path(one.rfilename).suffix in {".bin", ".pt", ".gguf"}:
                        (folder / Path(one.rfilename).name).touch()
            problem = _problem_of(folder, name)
            config = _config(folder)
            counts = _counts(api, name, commit, files, folder)
            template = _template(folder)
    return HubCard(
        summary=_summary(about, hub_models()).model_copy(update={"chat": bool(template)}),
        commit=commit,
        files=files,
        config=config,
        template=template,
        counts=counts,
        problem=problem,
    )


def wanted_files(sizes: dict[str, int]) -> tuple[HubFile, ...]:
    """Return the files of a repository (name → bytes) that training needs, largest first: those in
    its top folder. A second copy of the weights (`consolidated…`) is left out."""
    top = [name for name in sizes if "/" not in name]
    weights = [name for name in top if name.endswith(".safetensors")]
    named = [name for name in weights if name.startswith("model")]
    others = [name for name in top if any(fnmatch.fnmatch(name, one) for one in OTHER_FILES)]
    wanted = {*(named or weights), *(name for name in others if not name.endswith(".safetensors"))}
    return tuple(
        HubFile(name=name, bytes=sizes[name])
        for name in sorted(wanted, key=lambda name: (-sizes[name], name))
    )


@contextmanager
def hub_problems(name: str) -> Iterator[None]:
    """Convert exceptions of huggingface_hub in the block into ModelError with a message and a
    hint."""
    from httpx import HTTPError, TransportError
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    try:
        yield
    except GatedRepoError as error:
        raise ModelError(_gated(name, error)) from error
    except RepositoryNotFoundError as error:
        raise ModelError.of(
            "models.not_found",
            f"The hub has no model {name}, or it is private.",
            "Check the spelling (org/name). A private model needs HF_TOKEN or `hf auth login`.",
            detail=_one(error),
        ) from error
    except HFValidationError as error:
        raise ModelError.of(
            "models.bad_name",
            f"{name} is not a model name of the Hugging Face hub.",
            "Write the name as org/name.",
            detail=_one(error),
        ) from error
    except HfHubHTTPError as error:
        raise ModelError(_refused(name, error)) from error
    except (TransportError, OfflineModeIsEnabled, LocalEntryNotFoundError) as error:
        raise ModelError.of(
            "models.hub_unreachable",
            "The Hugging Face hub cannot be reached.",
            "Check the connection (or HF_ENDPOINT); models on this machine still work.",
            detail=_one(error),
        ) from error
    except (HTTPError, json.JSONDecodeError) as error:
        raise ModelError.of(
            CODE, "The Hugging Face hub sent an invalid answer.", "Try again later.",
            detail=_one(error),
        ) from error  # fmt: skip


def page_of(name: str) -> str:
    """Return the address of a model's page."""
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{name}"


def _gated(name: str, error: Exception) -> Problem:
    return Problem(
        code="models.gated",
        message=f"{name} is gated: its authors ask you to accept their terms first.",
        hint=f"Accept the terms at {page_of(name)}, then run `hf auth login` (or set HF_TOKEN and "
        "restart the engine).",
        detail=_one(error),
    )


def _refused(name: str, error: Any) -> Problem:
    status = error.response.status_code if error.response is not None else 0
    if status in (401, 403):
        return Problem(
            code="models.refused",
            message=f"The hub refuses access to {name} ({status}).",
            hint="Check the access token: HF_TOKEN, or `hf auth login`.",
            detail=_one(error),
        )
    hint = "Wait a few minutes, then try again." if status == 429 else "Try again later."
    message = f"The Hugging Face hub returned {f'HTTP {status}' if status else 'an error'}."
    return Problem(code=CODE, message=message, hint=hint, detail=_one(error))


def _one(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


def _summary(about: Any, known: dict[str, Path]) -> HubModel:
    """Convert the hub's record of a model (from a search or a lookup by name)."""
    config = about.config if isinstance(about.config, dict) else {}
    of = dict(about.safetensors.parameters) if about.safetensors else {}
    tags = about.tags or ()
    tokenizer = config.get("tokenizer_config")
    has_template = bool(config.get("chat_template_jinja")) or (
        isinstance(tokenizer, dict) and bool(tokenizer.get("chat_template"))
    )
    architectures = config.get("architectures") or ()
    path = known.get(about.id)
    return HubModel(
        id=about.id,
        downloads=about.downloads,
        likes=about.likes,
        licence=next((t.removeprefix("license:") for t in tags if t.startswith("license:")), ""),
        gated=bool(about.gated),
        parameters=about.safetensors.total if about.safetensors else None,
        parameters_of=of,
        weight_bytes=_weight_bytes(of),
        architecture=str(architectures[0]) if architectures else "",
        updated_at=about.last_modified.timestamp() if about.last_modified else None,
        chat=has_template if config else None,
        path=str(path) if path else None,
    )


def _weight_bytes(parameters_of: dict[str, int]) -> int | None:
    """Return Σ parameters · bits / 8 over the data types; None if one is unknown."""
    if not parameters_of or any(kind not in WIDTH_BITS for kind in parameters_of):
        return None
    return sum(count * WIDTH_BITS[kind] for kind, count in parameters_of.items()) // 8


def _read(api: Any, name: str, file: str, commit: str, most: int, token: str | None) -> bytes:
    """Return the bytes of a small file of a repository; empty beyond `most` bytes."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    url = hf_hub_url(name, file, revision=commit, endpoint=api.endpoint)
    body = bytearray()
    with get_session().stream("GET", url, headers=build_hf_headers(token=token)) as response:
        if response.is_error:
            response.read()
        hf_raise_for_status(response)
        for block in response.iter_bytes():
            body += block
            if len(body) > most:
                return b""
    return bytes(body)


def _problem_of(folder: Path, name: str) -> Problem | None:
    """Return why a model cannot be trained, from the same checks as on this machine."""
    try:
        check_folder(folder, name)
    except ModelError as error:
        return error.problem.model_copy(update={"where": ""})
    return architecture_problem(_config(folder), name)


def _config(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / "config.json")
    except ModelError:  # `_problem_of` has said so
        return {}


def _template(folder: Path) -> str:
    try:
        return chat_template(folder)
    except ModelError:
        return ""


def _counts(
    api: Any, name: str, commit: str, files: Sequence[HubFile], folder: Path
) -> dict[str, int] | None:
    """Return the counts from the headers of the weights, read by ranges; None if a header or the
    config is unusual, the weights are quantised, or there are too many files."""
    from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

    weights = [file.name for file in files if file.name.endswith(".safetensors")]
    if not weights or len(weights) > MOST_HEADERS or quantisation(_config(folder)):
        return None
    headers = []
    try:
        for file in weights:
            found = api.parse_safetensors_file_metadata(name, file, revision=commit)
            tensors = {
                key: {"dtype": one.dtype, "shape": one.shape, "data_offsets": one.data_offsets}
                for key, one in found.tensors.items()
            }
            checked_end(tensors)
            headers.append(tensors)
        return count_shapes(folder / "config.json", headers)
    except (SafetensorsParsingError, NotASafetensorsRepoError, ModelError):
        return None
    except (ValueError, KeyError, TypeError):
        return None


def context_tokens(config: dict[str, Any]) -> int | None:
    """Return the maximum context length of a model in tokens; None if its config has none."""
    value = text_config(config).get("max_position_embeddings")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
