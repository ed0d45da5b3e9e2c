"""Messages between home engine and remote server: parsed, or rejected by pydantic."""

import json
import random

from pydantic import TypeAdapter

from engine.protocol.identifiers import check_path
from engine.protocol.problems import Problem
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.home import (
    AskFields,
    ChatFields,
    HomeRequestList,
    HomeResponse,
    Lease,
    Leased,
)
from engine.protocol.requests.remote import HostList, Moved, Reached
from engine.protocol.requests.runs import EngineInfo
from engine.protocol.requests.sync import Begun, Manifest, Missing, Synced, SyncFolder
from tests.fuzz.mutation import mutate as change

REFUSALS = (ValueError,)
FORMS = [
    TypeAdapter(form)
    for form in (
        *(
            Manifest,
            SyncFolder,
            Missing,
            Begun,
            Synced,
            HomeRequestList,
            HomeResponse,
            Lease,
            Leased,
        ),
        *(AskFields, ChatFields, HostList, Moved, Reached, RunSummary, EngineInfo, Problem),
    )
]
HASH, RUN = "0" * 64, "01JD5MAMBERKESTRE000000000"
FILE = {"path": "checkpoints/step-000001/x", "bytes": 3, "sha256": HASH, "executable": True}
MESSAGES = [{"role": "user", "content": "Hello"}]
ASKED = {"key": HASH, "model": "openai/x", "attempt": 0, "base_url": None, "timeout_s": 1.0}
VALUES: tuple[object, ...] = (
    {"files": [FILE]},
    {"folder": "p", "run": RUN, "place": "workspace", "manifest": {"files": [FILE]}},
    {"sha256": [HASH], "bytes": 3},
    {"path": "/a", "changed": 1, "removed": 0},
    {"requests": [{"id": "0" * 32, "run_id": RUN, "op": "ask", "fields": ASKED}]},
    {"home": "0" * 32, "name": "me", "take_over": False, "fresh": True},
    ASKED | {"messages": MESSAGES, "max_tokens": 10, "temperature": 0.5},
    ASKED | {"request": {"messages": MESSAGES, "max_tokens": 10, "stop": ["a"]}},
    {
        "port": 1,
        "token": "a",
        "pid": 1,
        "api": [1, 0],
        "version": "1",
        "build": "b",
        "workspace": "/w",
    },
    {
        "id": RUN,
        "name": "a",
        "kind": "train",
        "project": "p",
        "project_path": "/p",
        "path": "/p/runs/a",
        "state": "running",
        "step": 1,
        "steps": 2,
        "started_at": 1.5,
        "changed_at": 2.5,
        "rewards": [0.5, None],
    },
)


def seeds() -> list[bytes]:
    return [json.dumps(value).encode() for value in VALUES]


def mutate(seed: bytes, rng: random.Random) -> bytes:
    """Replace a valid path by an invalid one half of the time."""
    if rng.random() < 0.5:
        bad = change(FILE["path"].encode(), rng)  # type: ignore[attr-defined]
        text = json.dumps(bad.decode(errors="replace")).encode()
        seed = seed.replace(json.dumps(FILE["path"]).encode(), text)
    return change(seed, rng)


def execute(data: bytes) -> None:
    """Every form reads the data; accepted paths are safe, and accepted values can be serialized."""
    refused = 0
    for form in FORMS:
        try:
            value = form.validate_json(data)
        except ValueError:
            refused += 1
            continue
        for file in getattr(value, "files", ()):
            assert check_path(file.path) == file.path
            assert not file.path.startswith("/")
            assert ".." not in file.path.split("/")
        form.dump_json(value)
    if refused == len(FORMS):
        raise ValueError("no form accepts the data")
