"""Import of an .art folder: finds the model, its splits and steps, and reads file by file.

Layout: `.art/{project}/models/{name}/trajectories/{split}/{step:04d}.parquet`, or `.jsonl` before
2026. Step numbers are kept. `train` is the training split and `val` validation. Other splits are
added to validation, with their name as a prefix of the scenario.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.integrations.importers.art_groups import read_groups
from engine.integrations.importers.art_trajectories import attempts_of
from engine.integrations.importers.chat_messages import Source, TrajectoryBatch, empty_source
from engine.integrations.importers.parquet import ParquetReader
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import Split, Trajectory

ATTEMPTS = "trajectories"
DEEPEST = 4
"""Maximum depth at which a model folder is searched below the given folder:
.art/PROJECT/models/MODEL."""
SUFFIXES = (".parquet", ".jsonl")
KNOWN: dict[str, Split] = {"train": "train", "val": "validation", "validation": "validation"}
HINT = "Pass the folder of a model: .art/PROJECT/models/NAME."


class ArtFile(NamedTuple):
    """A trajectory file of ART: one split and step."""

    step: int
    split: Split
    prefix: str
    """Prefix of scenario ids, for a split that is neither training nor validation."""
    path: Path


def open_art(folder: Path, model: str = "") -> Source:
    """Return a source for the ART model `model` in a folder (empty: the only one). Raises
    ConfigError if it is missing or ambiguous."""
    home = find_art_model(folder, model)
    files, notes = _files(home)
    if not files:
        raise empty_source(
            home / ATTEMPTS,
            "ART writes trajectories here during training; train, then import again.",
        )
    last = max((file.step for file in files if file.split == "train"), default=0)
    return Source(home.name, last, lambda: _lots(files), notes)


def open_art_file(file: Path) -> Source:
    """Return a source for one Parquet file, whose groups become one training step: the number that
    is the file's name, else 1."""
    step = int(file.stem) if file.stem.isdecimal() else 1
    return Source(file.stem, step, lambda: _lots([ArtFile(step, "train", "", file)]))


def find_art_model(folder: Path, model: str = "") -> Path:
    """Folder of the ART model named `model` (empty: of the only one). Raises ConfigError."""
    places = ["*/" * depth + ATTEMPTS for depth in range(DEEPEST + 1)]
    homes = sorted({found.parent for place in places for found in folder.glob(place)})
    wanted = [home for home in homes if not model or home.name == model]
    if len(wanted) == 1:
        return wanted[0]
    names = ", ".join(str(home.relative_to(folder)) for home in homes)
    if not homes:
        raise ConfigError.of(
            "import.no_model", "There are no ART trajectories in this folder.", HINT, str(folder)
        )
    if not wanted:
        words = f"This folder has no model {model}; it contains {names}."
        raise ConfigError.of("import.no_model", words, HINT, str(folder))
    raise ConfigError.of(
        "import.which_model",
        f"This folder contains {len(homes)} models: {names}.",
        "Import one of them: pass its folder, or --model NAME.",
        where=str(folder),
    )


def _files(home: Path) -> tuple[list[ArtFile], tuple[str, ...]]:
    """Return files in training order, and a sentence for each skipped one."""
    found: dict[tuple[str, int], ArtFile] = {}
    notes = []
    for path in sorted((home / ATTEMPTS).glob("*/*")):
        split = path.parent.name
        if not path.resolve().is_relative_to(home.resolve()):
            notes.append(f"{split}/{path.name} was skipped: it is a link to another folder.")
            continue
        if path.suffix not in SUFFIXES or not path.stem.isdecimal():
            notes.append(f"{split}/{path.name} was skipped: its name is not a step number.")
            continue
        known = KNOWN.get(split)
        prefix = "" if known else f"{split}/"
        file = ArtFile(int(path.stem), known or "validation", prefix, path)
        if other := found.get((split, file.step)):  # ART has migrated it: Parquet comes last
            notes.append(f"{split}/{other.path.name} was skipped: {path.name} has the same step.")
        found[split, file.step] = file
    return sorted(found.values(), key=lambda f: (f.step, f.split, f.prefix)), tuple(notes)


def _lots(files: list[ArtFile]) -> Iterator[TrajectoryBatch]:
    with ParquetReader() as reader:
        places = dict.fromkeys((file.step, file.split) for file in files)
        for step, split in places:
            here = [file for file in files if (file.step, file.split) == (step, split)]
            lot = _lot(here, step, split, reader)
            if lot.groups:
                yield lot


def _lot(files: list[ArtFile], step: int, split: Split, reader: ParquetReader) -> TrajectoryBatch:
    groups: list[list[Trajectory]] = []
    dropped = 0
    for file in files:
        for found in read_groups(file.path, reader):
            made, lost = attempts_of(found, split, step, len(groups), file.prefix)
            dropped += lost
            if made:
                groups.append(made)
    return TrajectoryBatch(split, step, groups, dropped)
