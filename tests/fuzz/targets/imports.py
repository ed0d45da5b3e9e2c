"""Files of imported trajectories, in Atelier's and ART's JSON Lines, and of traces: read completely
or rejected with a line number."""

import atexit
import json
import random
from pathlib import Path

from engine.integrations.importers.art_groups import read_groups
from engine.integrations.importers.art_trajectories import attempts_of
from engine.integrations.importers.chat_messages import empty_source
from engine.integrations.importers.jsonl import read_attempts
from engine.integrations.importers.masking import Masker, masked
from engine.integrations.importers.parquet import ParquetReader
from engine.integrations.importers.traces.source import open_traces
from engine.protocol.problems import ConfigError
from tests.engine.integrations.importers.traces.files import FORMATS
from tests.fuzz.mutation import mutate as change

REFUSALS = (ConfigError,)
READER = ParquetReader()
"""Never started: no file here is Parquet."""
atexit.register(READER.__exit__)
ASKED, SAID = {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
OURS = [
    {"messages": [ASKED, SAID], "group": 1, "reward": 0.5, "metrics": {"a": 1}, "title": "t"},
    [
        ASKED,
        {"role": "assistant", "content": [{"type": "text", "text": "x"}], "tool_calls": [CALL]},
    ],
]
THEIRS = {
    "trajectories": [
        {
            "messages_and_choices": [
                ASKED,
                {"finish_reason": "stop", "message": SAID, "logprobs": {"content": [{}]}},
            ],
            "reward": 1.0,
            "metrics": {"duration": 1.0},
            "metadata": {"scenario_id": "s"},
            "logs": ["l"],
            "additional_histories": [{"messages_and_choices": [ASKED, SAID]}],
        }
    ],
    "exceptions": [{"type": "<class 'ValueError'>", "message": "m", "traceback": "t"}],
}


def seeds() -> list[bytes]:
    ours = "\n".join(json.dumps(line) for line in OURS).encode()
    traces = ["\n".join(map(json.dumps, lines)).encode() for lines in FORMATS.values()]
    return [ours, b"\xef\xbb\xbf" + ours, json.dumps(THEIRS).encode(), *traces]


def mutate(seed: bytes, rng: random.Random) -> bytes:
    return change(seed, rng, seeds())


def execute(data: bytes, folder: Path) -> None:
    """Read the file in all formats; it counts as rejected if all reject it."""
    file = folder / "0001.jsonl"
    file.write_bytes(data)
    refusals = []
    for read in READERS:
        try:
            read(file)
        except ConfigError as error:
            refusals.append(error)
    if len(refusals) == len(READERS):
        raise refusals[0]


def _as_ours(file: Path) -> None:
    for group in read_attempts(file):
        assert all(one.model_dump_json() for one in group)


def _as_theirs(file: Path) -> None:
    for number, found in enumerate(read_groups(file, READER)):
        attempts_of(found, "train", 1, number)


def _as_traces(file: Path) -> None:
    source = open_traces(file)
    if source is None:
        raise empty_source(file, "")
    masker = Masker()
    for batch in masked(source, masker).lots():
        assert all(one.model_dump_json() for group in batch.groups for one in group)


READERS = (_as_ours, _as_theirs, _as_traces)
