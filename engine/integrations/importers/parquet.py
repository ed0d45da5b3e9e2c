"""Reader of Parquet files, in a process with its own environment.

pyarrow takes 170 MB and only imports of .art folders need it, so it is installed on demand.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from engine.environments import python_of
from engine.protocol.problems import AtelierError, ConfigError
from engine.runtime.variables import allowed_environment

WORKER = Path(__file__).with_name("parquet_worker.py")

MOST_ROW_CHARS = 2**26
Row = dict[str, Any]


class ParquetReaderDied(AtelierError):
    """The Parquet reader process ended unexpectedly."""


class ParquetReader:
    """Reader process for any number of Parquet files, started with the first. A context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process

    def __enter__(self) -> "ParquetReader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
        self._errors.close()

    def rows(self, file: Path) -> Iterator[tuple[int, Row]]:
        """Yield row numbers from 1 and rows; read all of them before the next file. Raises
        ConfigError if the file is not Parquet, or of an unknown version of ART's format."""
        if not file.is_file() or "\n" in str(file):  # a pipe would be waited for
            raise ConfigError.of(
                "attempts.no_parquet",
                "This is not a regular file.",
                "Pass a Parquet file, or the folder of a model.",
                where=str(file),
            )
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(f"{file}\n")
        process.stdin.flush()
        head = self._line(file)
        _check_version(head["version"], file)
        for number in range(1, head["rows"] + 1):
            yield number, self._line(file)

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None:
            self._process = subprocess.Popen(
                [str(python_of("parquet")), "-I", str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                encoding="utf-8",
                env=allowed_environment(),
            )
        return self._process

    def _line(self, file: Path) -> Row:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline(MOST_ROW_CHARS + 1)
        if len(line) > MOST_ROW_CHARS:
            raise ConfigError.of(
                "attempts.row_too_long",
                f"A row of this file is longer than {MOST_ROW_CHARS >> 20} million characters.",
                "Copy the file again; ART does not write such long rows.",
                where=str(file),
            )
        if not line:
            self._errors.seek(0)
            raise ParquetReaderDied.of(
                "import.reader_died",
                "The process that reads Parquet ended unexpectedly.",
                "Try again. If it fails every time, the file does not fit in memory.",
                where=str(file),
                detail=self._errors.read().decode(errors="replace")[-4000:],
            )
        answer: Row = json.loads(line)
        if "problem" in answer:
            raise ConfigError.of(
                "attempts.no_parquet",
                "This file cannot be read as Parquet.",
                "Copy the file again; it may be incomplete.",
                where=str(file),
                detail=answer["problem"],
            )
        return answer


def _check_version(version: str | None, file: Path) -> None:
    if version not in (None, "2"):
        raise ConfigError.of(
            "attempts.newer",
            f"This file has version {version} of ART's format; versions 1 and 2 are supported.",
            "Update Atelier, or write the file with an older ART.",
            where=str(file),
        )
