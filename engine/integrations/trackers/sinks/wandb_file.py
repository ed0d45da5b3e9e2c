"""Reader of W&B's offline files: W&B's protobuf records in the log format of LevelDB.

wandb no longer has a reader in Python. The format: seven bytes of header, then blocks of 32 KiB
with chunks of checksum (4), length (2), type (1) and data; type 1 is a whole record, 2, 3 and 4 are
its first, middle and last part (github.com/google/leveldb, doc/log_format.md).
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2 as wire

HEADER = 7
BLOCK = 32 * 1024
CHUNK = 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def last_step(folder: Path) -> int:
    """Return the highest step in the offline files of a run folder; 0 without any."""
    steps = [
        int(row["_step"])
        for file in folder.glob("wandb/offline-run-*/run-*.wandb")
        for row in history(file)
        if "_step" in row
    ]
    return max(steps, default=0)


def history(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the logged rows (metric → value) of an offline W&B file, which may still be growing."""
    for data in _records(file.read_bytes()):
        record = wire.Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            row = {
                ".".join(item.nested_key) or item.key: json.loads(item.value_json)
                for item in record.history.item
            }
            yield {"_step": record.history.step.num, **row}


def _records(data: bytes) -> Iterator[bytes]:
    place, whole = HEADER, b""
    while place + CHUNK <= len(data):
        left = BLOCK - place % BLOCK
        if left < CHUNK:
            place += left
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        part = data[place + CHUNK : place + CHUNK + length]
        if not kind or len(part) < length:
            return
        place += CHUNK + length
        whole = part if kind in (FULL, FIRST) else whole + part
        if kind in (FULL, LAST):
            yield whole
