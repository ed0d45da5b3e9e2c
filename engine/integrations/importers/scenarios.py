"""Import of conversations as scenarios: their messages up to the first answer, and their tools."""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from engine.integrations.importers.chat_messages import beginning_of, empty_source, title_of
from engine.integrations.importers.masking import PLACEHOLDER, Masker, masked
from engine.integrations.importers.storage import open_source
from engine.protocol.problems import ConfigError
from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import ImportedScenarios, Split, Trajectory
from engine.storage.project import append_scenarios, load_config, read_scenarios, scenario_file

SPLITS: tuple[Split, ...] = ("train", "validation")
EMPTY_FILE = ("scenarios.missing", "scenarios.empty")
ID_DIGITS = 12


def import_scenarios(
    project: Path, source: Path, split: Split = "train", model: str = "", mask: bool = False
) -> ImportedScenarios:
    """Append the beginnings of a source's conversations to the scenario file of a split, each once,
    and none that the project has in any split. Raises ConfigError and then changes nothing."""
    config = load_config(project)
    file = scenario_file(project, config, split)
    if file is None:
        raise ConfigError.of(
            "scenarios.no_file",
            f"The settings name no file for {split} scenarios.",
            f"Set scenarios.{split} in project.toml.",
            where=f"scenarios.{split}",
        )
    known = set().union(*(_known(scenario_file(project, config, one)) for one in SPLITS))
    opened = open_source(source, model)
    opened = masked(opened, Masker()) if mask else opened
    items: dict[str, dict[str, Any]] = {}
    count = repeated = silent = 0
    with contextlib.closing(opened.lots()) as lots:  # type: ignore[type-var]
        for one in (one for lot in lots for group in lot.groups for one in group):
            count += 1
            item = _scenario(one)
            if item is None:
                silent += 1
            elif item["id"] in known or item["id"] in items:
                repeated += 1
            else:
                items[item["id"]] = item
    if not count:
        raise empty_source(source, "Import a file or folder with at least one trajectory.")
    append_scenarios(file, list(items.values()))
    notes = [*opened.notes, *opened.last_notes()]
    if silent:
        notes.insert(0, f"Conversations that begin with an answer, omitted: {silent}.")
    return ImportedScenarios(
        split=split, path=str(file), new=len(items), repeated=repeated, notes=notes
    )


def scenario_key(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
    """Hash of the content of a scenario. Placeholders of masked values are numbered anew, because
    their numbers depend on the rest of an import."""
    text = json.dumps([messages, tools], sort_keys=True, ensure_ascii=False)
    numbers: dict[str, int] = {}

    def renumber(found: Any) -> str:
        return f"<{found[1]}_{numbers.setdefault(found[0], len(numbers) + 1)}>"

    return hashlib.sha256(PLACEHOLDER.sub(renumber, text).encode()).hexdigest()[:ID_DIGITS]


def _known(file: Path | None) -> set[str]:
    """Ids that the content of a file's scenarios would get. Raises ConfigError with the first
    problem of the file."""
    if file is None:
        return set()
    scenarios, problems = read_scenarios(file)
    if serious := [one for one in problems if one.code not in EMPTY_FILE]:
        raise ConfigError(serious[0])
    found = {one.id for one in scenarios}
    for one in scenarios:
        messages = one.data.get("messages")
        if isinstance(messages, list):
            found.add(_id(messages, one.data.get("tools") or []))
    return found


def _id(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
    return f"imported-{scenario_key(messages, tools)}"


def _scenario(one: Trajectory) -> dict[str, Any] | None:
    beginning = beginning_of(one.messages)
    if not beginning:
        return None
    messages = [_plain(message) for message in beginning]
    name = _id(messages, one.tools)
    item = {"id": name, "title": title_of(beginning, name), "messages": messages}
    return {**item, "tools": one.tools} if one.tools else item


def _plain(message: Message) -> dict[str, Any]:
    """Message as an agent sends it: without empty fields, except for the content."""
    data = message.model_dump(exclude_defaults=True, exclude={"images", "reasoning"})
    return {"role": message.role, "content": message.content, **data}
