"""Detection of an import source: a file of trajectories, or a folder of ART."""

from pathlib import Path

from engine.integrations.importers.art import open_art, open_art_file
from engine.integrations.importers.batches import Source
from engine.integrations.importers.jsonl import open_jsonl
from engine.protocol.problems import ConfigError


def open_source(path: Path, model: str = "") -> Source:
    """`model` chooses among those of an .art folder. Raises ConfigError where nothing is there."""
    if path.is_dir():
        return open_art(path, model)
    if not path.exists():
        raise ConfigError.of(
            "import.no_source",
            "There is nothing to import here.",
            "Name a JSONL file of chat messages, or an .art folder.",
            where=str(path),
        )
    if not path.is_file() or "\n" in str(path):
        raise ConfigError.of(
            "import.no_file",
            "This is neither a folder nor a regular file.",
            "Name a JSONL file of chat messages, or an .art folder; copy what a pipe holds into a "
            "file first.",
            where=str(path),
        )
    return open_art_file(path) if path.suffix == ".parquet" else open_jsonl(path)
