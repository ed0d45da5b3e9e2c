"""`models list|search|show|pull|delete|path`; only `delete` needs an engine."""

import argparse
import asyncio
import os
import time
from pathlib import Path

from engine.cli.engine_connection import engine_for
from engine.cli.terminal import Progress as Line
from engine.cli.terminal import duration, say, say_json, table
from engine.hardware.devices import cards_of
from engine.hardware.model_fit import fit_of
from engine.models.download import pull_model
from engine.models.facts import known_facts, known_here, known_on_hub
from engine.models.hub import search_hub
from engine.models.hub_download import Progress
from engine.models.local import local_models
from engine.models.partial import free_bytes
from engine.models.registry import find_model, hub_cache
from engine.protocol.config.project import ProjectConfig
from engine.protocol.requests.models import LocalModel, ModelFacts, ModelFit
from engine.storage.project import load_config

FITS = {"fits": "fits", "fits_4bit": "fits in 4 bit", "too_large": "too large", None: "–"}
WINDOW_S = 5.0
"""Seconds over which the speed is measured."""


def run(arguments: argparse.Namespace) -> int:
    return ACTIONS[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    models = local_models()
    if arguments.json:
        for model in models:
            say_json(model)
        return 0
    rows = [(model.name, model.title, _amount(model.bytes or None), _where(model))
            for model in models]  # fmt: skip
    say(table(("name", "", "on disk", "where"), rows))
    say(f"\n{_amount(free_bytes(hub_cache()))} free.")
    return 0


def _where(model: LocalModel) -> str:
    if model.path is None:
        return f"not downloaded ({_amount(model.download_bytes)})"
    return f"{model.path} ({model.problem.message})" if model.problem else model.path


def _search(arguments: argparse.Namespace) -> int:
    models = search_hub(" ".join(arguments.words), _token())
    if arguments.json:
        for model in models:
            say_json(model)
        return 0
    rows = [
        (
            model.id,
            _count(model.parameters),
            _amount(model.weight_bytes),
            model.licence or "–",
            "gated" if model.gated else "",
            _count(model.downloads),
            "here" if model.path else "",
        )
        for model in models
    ]
    head = ("name", "parameters", "weights", "licence", "", "downloads", "")
    say(table(head, rows) if rows else "No model in safetensors format matches the search.")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    project = Path(arguments.project).expanduser().resolve() if arguments.project else None
    config = load_config(project) if project else ProjectConfig()
    known = known_here(arguments.name) or known_on_hub(arguments.name, _token())
    fit = fit_of(
        known.counts,
        config,
        cards_of(config.backend),
        parameters=known.summary.parameters,
        unknown=known.counts_unknown,
    )
    words = f"the settings of {project.name}" if project else "default settings"
    facts = known_facts(known).model_copy(
        update={"fit": fit.model_copy(update={"settings": words})}
    )
    if arguments.json:
        say_json(facts)
    else:
        say(table(("", ""), _facts(facts)).partition("\n")[2])
    return 0


def _facts(facts: ModelFacts) -> list[tuple[str, str]]:
    about = facts.summary
    tools = {True: ", with tools", False: ", without tools", None: ""}[facts.tools]
    chat = {True: f"yes{tools}", False: "no", None: "–"}[about.chat]
    updated = (
        time.strftime("%Y-%m-%d", time.localtime(about.updated_at)) if about.updated_at else ""
    )
    return [
        ("name", about.id),
        ("page", facts.page or "–"),
        ("licence", about.licence or "–"),
        ("gated", "yes" if about.gated else "no"),
        ("updated", updated or "–"),
        ("parameters", _count(about.parameters)),
        ("architecture", about.architecture or "–"),
        ("context", f"{facts.context_tokens:,} tokens" if facts.context_tokens else "–"),
        ("chat format", chat),
        ("download", f"{_amount(facts.download_bytes)} in {len(facts.files)} files"),
        ("here", about.path or "no"),
        ("memory", _fit_words(facts.fit)),
        ("problem", str(facts.problem) if facts.problem else "none"),
    ]


def _fit_words(fit: ModelFit) -> str:
    if fit.verdict is None:
        return f"– ({fit.unknown})"
    words = f"{FITS[fit.verdict]} on {fit.device}"
    if fit.peak_bytes is not None:
        words += f": {_amount(fit.peak_bytes)} of {_amount(fit.room_bytes)}"
    if fit.peak_4bit_bytes is not None:
        words += f", {_amount(fit.peak_4bit_bytes)} in 4 bit"
    return f"{words} ({fit.settings})"


def _pull(arguments: argparse.Namespace) -> int:
    line, begin = Line(), list[tuple[float, int]]()

    def tell(now: Progress) -> None:
        begin.append((time.monotonic(), now.done))
        while begin[-1][0] - begin[0][0] > WINDOW_S:
            begin.pop(0)
        seconds, size = begin[-1][0] - begin[0][0], begin[-1][1] - begin[0][1]
        words = f"{now.stage}: {_amount(now.done)} of {_amount(now.total)}"
        if now.stage == "downloading" and seconds > 0 and size > 0:
            left = duration((now.total - now.done) * seconds / size)
            words += f", {_amount(int(size / seconds))}/s, {left} left"
        line.show(words)

    try:
        folder = pull_model(arguments.name, say, tell, _token(), not arguments.tokenizer)
    except KeyboardInterrupt:
        line.clear()
        say("Stopped. Run the same command to resume.")
        return 1
    finally:
        line.clear()
    say(str(folder))
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    if not arguments.yes:
        say(f"Delete {arguments.name} from this machine? Type its name to confirm:")
        if input().strip() != arguments.name:
            say("Nothing was deleted.")
            return 3

    async def delete() -> None:
        async with engine_for(arguments.workspace) as client:
            done = await client.delete_model(arguments.name)
        say(f"{done.name} was deleted; {_amount(done.freed_bytes)} were freed.")
        if done.runs:
            say(f"Runs that used it: {done.runs}. To resume them, download the model again.")

    asyncio.run(delete())
    return 0


def _path(arguments: argparse.Namespace) -> int:
    say(str(find_model(arguments.name)))
    return 0


def _token() -> str | None:
    """Return the hub's token; None for the file of `hf auth login`, or no token."""
    return os.environ.get("HF_TOKEN")


def _amount(size: int | None) -> str:
    if size is None:
        return "–"
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _count(number: int | None) -> str:
    if number is None:
        return "–"
    for unit, suffix in ((10**9, " B"), (10**6, " M"), (10**3, " k")):
        if number >= unit:
            return f"{number / unit:.1f}{suffix}"
    return str(number)


ACTIONS = {
    "list": _list,
    "search": _search,
    "show": _show,
    "pull": _pull,
    "delete": _delete,
    "path": _path,
}
