"""Responses that no honest engine sends: general ones for any JSON, and special ones by message."""

import copy
import json
import zlib
from collections.abc import Iterator
from typing import Any

from tests.support.hostile_engine import Lie

TRAVERSALS = (
    "../../../../../../../../tmp/atelier-escaped",
    "/tmp/atelier-escaped",
    "..\\..\\x",
    "a\0b",
    "\x1b]0;owned\x07",
    "~/.bashrc",
    "$(touch /tmp/atelier-escaped)",
    "x" * 100_000,
)
VALUES: tuple[Any, ...] = (None, True, -1, 2**63, 1e308, [], {}, [[]], {"a": 1}, *TRAVERSALS)


def general(true: bytes) -> Iterator[Lie]:
    """Yield lies for any JSON response: cut, deep, large, of other types, with fields missing or
    twice."""
    for body in (
        b"",
        b"null",
        b"[]",
        b"{}",
        b'""',
        true[: len(true) // 2],
        true + true,
        b"\xff" + true,
        b"[" * 200_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"message": "x"}',
    ):
        yield Lie(body)
    yield Lie(b"", endless=b"[" * 2**16)
    yield Lie(b"", endless=b" " * 2**16)
    yield Lie(zlib.compress(b"0" * 2**24), headers={"content-encoding": "deflate"})
    yield Lie(b"", status=302, headers={"location": "http://127.0.0.1:9/keys"})
    yield Lie(b"[" * 100_000, status=400)
    yield Lie(true, status=500)
    yield Lie(b"", status=204)
    for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 400):
        if (place := next((n for n, c in enumerate(true) if 48 <= c <= 57), None)) is not None:
            yield Lie(true[:place] + number + true[place + 1 :])
    yield from changed(true)


def changed(true: bytes) -> Iterator[Lie]:
    """Change each field of the first record: missing, or with another value."""
    try:
        value = json.loads(true)
    except ValueError:
        return
    for path in _paths(value):
        for number, other in enumerate(VALUES):
            if (len(path) + number) % 3 == 0:
                yield Lie(json.dumps(_with(value, path, other)).encode())
        yield Lie(json.dumps(_with(value, path, ...)).encode())


def _paths(value: Any, depth: int = 0) -> Iterator[tuple[Any, ...]]:
    if depth > 2:
        return
    if isinstance(value, list):
        for path in _paths(value[0], depth + 1) if value else ():
            yield (0, *path)
    elif isinstance(value, dict):
        for key in value:
            yield (key,)
            for path in _paths(value[key], depth + 1):
                yield (key, *path)


def _with(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    made = copy.deepcopy(value)
    place = made
    for key in path[:-1]:
        place = place[key]
    if other is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = other
    return made


def files(content: bytes, digest: str) -> Iterator[Lie]:
    """Yield file lists with entries outside of the run, or with other content."""
    for path in (
        *TRAVERSALS,
        "../../agent.py",
        "../../project.toml",
        "run.db",
        "replica.json",
        "lock",
        "checkpoints/../../../agent.py",
        "checkpoints/step-000001/../../run.json",
        "logs/run.log",
        "checkpoints-x/a",
    ):
        entry = {"path": path, "bytes": len(content), "sha256": digest, "executable": True}
        yield Lie(json.dumps({"files": [entry]}).encode())
    good = {"path": "checkpoints/step-000001/x", "bytes": 1, "sha256": digest}
    yield Lie(json.dumps({"files": [good | {"bytes": 2**42}]}).encode())
    yield Lie(json.dumps({"files": [good, good]}).encode())
    yield Lie(json.dumps({"files": [good] * 300_000}).encode())


def errands(run_ids: list[str], url: str, true_url: str) -> Iterator[Lie]:
    """Yield requests that should steal keys, money or calls."""
    question = {
        "key": "0" * 64,
        "model": "openai/scripted",
        "provider": "openai",
        "messages": [{"role": "user", "content": "x"}],
        "base_url": true_url,
        "max_tokens": 64,
        "temperature": 0,
        "timeout_s": 5,
        "attempt": 0,
    }
    for run_id in run_ids:
        for op, fields in (
            ("ask", question | {"base_url": url}),
            ("ask", question | {"base_url": url, "provider": "anthropic", "model": "anthropic/x"}),
            ("ask", question | {"api_base": url}),
            ("ask", question | {"extra_headers": {"x": "y"}}),
            ("ask", question | {"key": "a\r\nb: c"}),
            ("chat", question | {"base_url": url}),
            ("chat", {**question, "request": {"messages": [], "api_base": url}}),
            ("keys", {"keys": {"openai": "x"}}),
            ("count", {"model": "openai/scripted", "questions": "x"}),
            ("price", {"model": {"x": url}}),
        ):
            errand = {"id": "0" * 32, "run_id": run_id, "op": op, "fields": fields}
            yield Lie(json.dumps({"requests": [errand] * 3}).encode())
    yield Lie(json.dumps({"requests": [{"id": "../../x", "run_id": "../x", "op": "ask"}]}).encode())
    yield Lie(json.dumps({"requests": [{}] * 2000}).encode())


def pages(true: bytes) -> Iterator[Lie]:
    """Yield pages of changes: damaged, bombs, from other databases."""
    bomb = zlib.compress(b"\0" * 2**28 + b"x", 9)
    for body in (b"", b"x", zlib.compress(b"no database"), bomb, true[:-4], true[::-1]):
        yield Lie(body)
    for last in ("x", "-1", "9" * 30, "1e9", ""):
        yield Lie(true, headers={"atelier-last-seq": last, "atelier-known-seq": last})
    yield Lie(true, headers={"atelier-last-seq": "99999999"})
    yield Lie(b"", endless=b"x" * 2**16)
    yield Lie(b"", status=204, headers={"atelier-known-seq": "99999999"})


def ticks() -> Iterator[Lie]:
    """Yield progress streams: no line feed, no JSON, other events, endless ones."""
    tick = '"kind":"progress.ticked","run_id":"x","step":1,"phase":"training","done":1,"total":2'
    yield Lie(b"", endless=b"x" * 2**16)
    yield Lie(b"data: ", endless=b"[" * 2**16)
    yield Lie(b"", endless=f"data: {{{tick}}}\n\n".encode() * 100)
    for line in ("", "{", "[" * 100_000, '{"kind":"run.finished","step":1}', f"{{{tick}}}", "\xff"):
        yield Lie(f"data: {line}\n\n".encode("latin-1"))
    yield Lie(f'data: {{{tick},"hardware":{{"cpu/percent":NaN}}}}\n\n'.encode())
    yield Lie(f'data: {{{tick},"words":"\x1b]0;owned\x07"}}\n\n'.encode())
