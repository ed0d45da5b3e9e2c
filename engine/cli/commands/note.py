"""`note RUN`: tags, text, pin and archive of a run. No engine needed."""

import argparse

from pydantic import ValidationError

from engine.cli.run_lookup import find_run_folder
from engine.cli.terminal import say, say_json
from engine.protocol.problems import ConfigError, first_invalid
from engine.protocol.records.run_notes import RunNotes
from engine.storage.run_folder.files import check_run_folder
from engine.storage.run_folder.notes import read_notes, write_notes


def run(arguments: argparse.Namespace) -> int:
    folder = find_run_folder(arguments.run)
    check_run_folder(folder)
    before = read_notes(folder)
    notes = _changed(before, arguments)
    if notes != before:
        write_notes(folder, notes)
    if arguments.json:
        say_json(notes)
    else:
        say(_words(notes))
    return 0


def _changed(notes: RunNotes, arguments: argparse.Namespace) -> RunNotes:
    tags = [tag for tag in notes.tags if tag not in arguments.untag]
    fields = notes.model_dump() | {"tags": [*tags, *arguments.tag]}
    for name in ("note", "pinned", "archived"):
        if (value := getattr(arguments, name)) is not None:
            fields[name] = value
    try:
        return RunNotes.model_validate(fields)
    except ValidationError as error:
        raise ConfigError.of("note.invalid", f"{first_invalid(error)}.") from error


def _words(notes: RunNotes) -> str:
    marks = [word for word in ("pinned", "archived") if getattr(notes, word)]
    parts = [", ".join(notes.tags), notes.note, *marks]
    return " · ".join(part for part in parts if part) or "No notes."
