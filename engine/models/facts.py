"""Details of one model by starter name, hub id or folder: from its files on this machine, or from
the hub."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from engine.models.architectures import architecture_problem
from engine.models.file_checks import (
    chat_template,
    check_folder,
    quantisation,
    read_json,
    shape_counts,
)
from engine.models.hub import context_tokens, page_of, read_card
from engine.models.partial import arrived_bytes, record_of
from engine.models.registry import Starter, converted, hub_models, starter_called, uploaded_models
from engine.protocol.problems import ModelError, Problem
from engine.protocol.requests.models import HubFile, HubModel, ModelFacts

LICENCE = re.compile(r"^license:\s*(\S+)\s*$", re.MULTILINE)
MOST_CARD_BYTES = 100_000
"""Bytes of a README that are searched for the licence."""
TOOLS = re.compile(r"\btools\b")


class Known(NamedTuple):
    """Contents of a model's files, as far as they can be read."""

    summary: HubModel
    title: str
    files: tuple[HubFile, ...]
    config: dict[str, Any]
    template: str | None
    """Chat template; empty if it has none, None if it is not known."""
    counts: dict[str, int] | None
    problem: Problem | None
    page: str

    @property
    def counts_unknown(self) -> str:
        """Reason why the parameter counts are unknown, shown with a forecast that lacks them."""
        if method := quantisation(self.config):
            return (
                f"The model's weights are quantised ({method}), which the forecast does not cover."
            )
        return "The shapes of the model's weights are not known."


def known_here(name: str) -> Known | None:
    """Return details of a model from files on this machine; None if it is not here, unless it is
    one of the starter models that Atelier offers."""
    starter = starter_called(name)
    if starter:
        folder = converted(starter)
        return _of_folder(starter.name, folder, starter) if folder else _of_starter(starter)
    folder = hub_models().get(name) or uploaded_models().get(name)
    if folder is None and (named := Path(name).expanduser()).is_dir():
        folder = named
    return _of_folder(name, folder) if folder else None


def known_on_hub(name: str, token: str | None) -> Known:
    """Return details of a model from the Hugging Face Hub. Raises ModelError if they cannot be
    read."""
    card = read_card(name, token)
    return Known(
        summary=card.summary,
        title=card.summary.id.rpartition("/")[2],
        files=card.files,
        config=card.config,
        template=card.template,
        counts=card.counts,
        problem=card.problem,
        page=page_of(card.summary.id),
    )


def known_facts(known: Known) -> ModelFacts:
    """Return the details for display; whether the model fits into memory is computed later."""
    summary = known.summary
    record = record_of(summary.id)
    parameters = summary.parameters
    if parameters is None and known.counts:
        parameters = known.counts["parameters"]
    starter = starter_called(summary.id)
    size = sum(file.bytes for file in known.files) if known.files else None
    if starter and summary.path is None:
        size = starter.download_bytes
    return ModelFacts(
        summary=summary.model_copy(update={"parameters": parameters}),
        title=known.title,
        page=known.page,
        files=known.files,
        download_bytes=size,
        arrived_bytes=arrived_bytes(record) if record else 0,
        context_tokens=context_tokens(known.config),
        tools=bool(TOOLS.search(known.template)) if known.template else None,
        problem=known.problem,
    )


def _of_folder(name: str, folder: Path, starter: Starter | None = None) -> Known:
    counts, problem, template, config = None, None, "", dict[str, Any]()
    try:
        config, template = read_json(folder / "config.json"), chat_template(folder)
        check_folder(folder, name)
        problem = architecture_problem(config, name)
        counts = None if quantisation(config) else shape_counts(folder)
    except ModelError as error:
        problem = error.problem
    files = [file for file in folder.glob("*") if file.is_file() and file.name != "READY"]
    sized = [HubFile(name=file.name, bytes=file.stat().st_size) for file in files]
    architectures = config.get("architectures") or [""]
    in_hub = hub_models().get(name) == folder
    return Known(
        summary=HubModel(
            id=name,
            licence=starter.licence if starter else _licence(folder),
            parameters=counts["parameters"] if counts else None,
            weight_bytes=sum(one.bytes for one in sized if one.name.endswith(".safetensors")),
            architecture=str(architectures[0]) if isinstance(architectures, list) else "",
            chat=bool(template),
            path=str(folder),
        ),
        title=starter.title if starter else Path(name).name,
        files=tuple(sorted(sized, key=lambda one: (-one.bytes, one.name))),
        config=config,
        template=template,
        counts=counts,
        problem=problem,
        page=page_of(starter.hub_id if starter else name) if starter or in_hub else "",
    )


def _of_starter(starter: Starter) -> Known:
    return Known(
        summary=HubModel(
            id=starter.name, licence=starter.licence, parameters=starter.parameters, chat=True
        ),
        title=starter.title,
        files=(),
        config={"max_position_embeddings": 8192},
        template=None,
        counts=starter.counts,
        problem=None,
        page=page_of(starter.hub_id),
    )


def _licence(folder: Path) -> str:
    """Return the licence that a model's card names; empty without one."""
    try:
        with (folder / "README.md").open(errors="replace") as card:
            found = LICENCE.search(card.read(MOST_CARD_BYTES))
    except OSError:
        return ""
    return found[1].strip("\"'") if found else ""
