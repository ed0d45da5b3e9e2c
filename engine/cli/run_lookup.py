"""A run folder that a command only reads; no engine is needed for that."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE, read_spec


@contextmanager
def reading(run: str) -> Iterator[RunReader]:
    """Raises StoreError for what is no run folder, or a newer one."""
    folder = Path(run).expanduser().resolve()
    read_spec(folder)
    reader = RunReader(folder / DATABASE)
    try:
        yield reader
    finally:
        reader.close()
