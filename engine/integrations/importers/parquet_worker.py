"""Worker that converts Parquet files to JSON lines, run by the `parquet` environment (pyarrow).

stdin: one path per line. stdout, for each: `{"rows", "version"}` and that many rows, or
`{"problem"}`. It exits when stdin closes, so it never outlives the engine.
"""

import json
import sys
from typing import Any

import pyarrow
import pyarrow.parquet

VERSION = b"art.trajectory_parquet.version"
ENVELOPE = ("format_version", "group_index", "trajectory_index", "group_json", "trajectory_json")
ROWS_AT_ONCE = 64


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message, default=str) + "\n")


def answer(path: str) -> None:
    """Write the rows of the Parquet file `path` to stdout as JSON lines: only the columns of
    `ENVELOPE` if it has a column `trajectory_json`, else all columns."""
    with pyarrow.parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        version = (schema.metadata or {}).get(VERSION)
        columns = [name for name in ENVELOPE if name in schema.names]
        whole = "trajectory_json" in columns
        say({"rows": file.metadata.num_rows, "version": version.decode() if version else None})
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns if whole else None):
            for row in batch.to_pylist():
                say(row)


def main() -> None:
    for line in sys.stdin:
        try:
            answer(line.rstrip("\n"))
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            say({"problem": str(error)})
        sys.stdout.flush()


if __name__ == "__main__":
    main()
