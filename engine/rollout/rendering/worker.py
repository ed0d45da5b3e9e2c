"""Renderer process: chat templates and tokenizers of models, which are untrusted code and patterns,
under limits of time and memory.

usage: python -m engine.rollout.rendering.worker SOCKET

Frames in both directions: lengths of head and tail (two big-endian 32-bit numbers), the head as
JSON, the tail as bytes (token ids, 32 bits each). A request that takes too long ends the process by
a signal whose number says which part it was: SIGVTALRM rendering, SIGPROF tokenising.
"""

import contextlib
import json
import resource
import signal
import socket
import struct
import sys
from array import array
from typing import Any

from tokenizers import Tokenizer

from engine.rollout.rendering.template import Template, TooLong

RENDER_S = 3.0
"""Processor time of one rendering."""
LOAD_S = 20.0
ENCODE_S = 3.0
"""Processor time of one tokenising, and a second more for each `CHARS_PER_S` characters."""
CHARS_PER_S = 100_000
MEMORY_BYTES = 512 * 2**20
"""Memory that a request may use beyond that of the loaded model."""
FRAME = struct.Struct("!II")
SHRINKING = 4
"""Most characters that a normalizer may merge into one, for the estimate of a prompt's length."""


class Unreadable(Exception):
    """The tokenizer cannot read a text."""


class Renderer:
    """Template and tokenizer of one model."""

    def __init__(self, head: dict[str, Any]) -> None:
        with _limited(signal.ITIMER_VIRTUAL, LOAD_S):
            self._tokenizer = Tokenizer.from_file(head["tokenizer"])
        _limit_memory()
        with _limited(signal.ITIMER_VIRTUAL, RENDER_S):  # compiling evaluates what is constant
            self._template = Template(head["template"], head["special"])
        longest = max(map(len, self._tokenizer.get_vocab()), default=1)
        self._most_chars = longest * (SHRINKING if self._tokenizer.normalizer else 1)

    def prompt(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        answers: dict[str, str],
        known: str,
        most_tokens: int,
    ) -> "tuple[dict[str, Any], array[int] | None]":
        """Text and tokens of a prompt; only the rest where it begins with `known`."""
        with _limited(signal.ITIMER_VIRTUAL, RENDER_S):
            text = self._template.fill(messages, {int(k): v for k, v in answers.items()}, tools)
        extends = bool(known) and text.startswith(known)
        text = text[len(known) :] if extends else text
        if len(text) > most_tokens * self._most_chars:
            return {"error": "too_many_chars", "message": str(len(text))}, None
        tokens = self.encode(text, special=False)
        return {"text": text, "extends": extends, "volatile": self._template.volatile}, tokens

    def render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], answer: bool
    ) -> dict[str, Any]:
        with _limited(signal.ITIMER_VIRTUAL, RENDER_S):
            return self._template.render(messages, tools, answer)._asdict()

    def encode(self, text: str, special: bool) -> "array[int]":
        with _limited(signal.ITIMER_PROF, ENCODE_S + len(text) / CHARS_PER_S):
            try:
                found = self._tokenizer.encode(text, add_special_tokens=special)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                raise Unreadable(_words(error)) from error  # a panic in Rust is no Exception
        return array("I", found.ids)


@contextlib.contextmanager
def _limited(timer: int, seconds: float):  # type: ignore[no-untyped-def]
    """Limit the processor time of the block: beyond it the kernel ends the process, which a
    template cannot delay, and which works without the engine."""
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)


def serve(line: socket.socket) -> None:
    """Answer requests until the other end is gone."""
    renderer: Renderer | None = None
    while (head := receive(line)) is not None:
        tokens: array[int] | None = None
        try:
            match head.pop("op"):
                case "load":
                    renderer = Renderer(head)
                    answer: dict[str, Any] = {}
                case "prompt":
                    assert renderer is not None
                    answer, tokens = renderer.prompt(**head)
                case "render":
                    assert renderer is not None
                    answer = renderer.render(**head)
                case _:
                    assert renderer is not None
                    answer, tokens = {}, renderer.encode(**head)
        except MemoryError:
            answer = {"error": "memory"}
        except TooLong:
            answer = {"error": "too_long"}
        except Unreadable as error:
            answer = {"error": "unreadable", "message": str(error)}
        except RecursionError:
            answer = {"error": "refused", "message": "it calls itself without an end"}
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything: it is said
            line_number = getattr(error, "lineno", None)
            answer = {"error": "refused", "message": _words(error), "line": line_number}
        send(line, answer, tokens.tobytes() if tokens is not None else b"")
        if answer.get("error") == "memory":
            return  # what is left of it is not known; a new one is started


def receive(line: socket.socket) -> dict[str, Any] | None:
    """Receive one request; None where the engine has closed the connection."""
    lengths = read(line, FRAME.size)
    if lengths is None:
        return None
    head = read(line, FRAME.unpack(lengths)[0])
    return None if head is None else json.loads(head)


def send(line: socket.socket, head: dict[str, Any], tail: bytes = b"") -> None:
    data = json.dumps(head).encode()
    line.sendall(FRAME.pack(len(data), len(tail)) + data + tail)


def read(line: socket.socket, count: int) -> bytes | None:
    """Read `count` bytes; None where the connection ends before."""
    parts = bytearray()
    while len(parts) < count:
        part = line.recv(min(count - len(parts), 2**20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _limit_memory() -> None:
    """Limit the address space to the current size plus `MEMORY_BYTES` (Linux only; no limit
    elsewhere)."""
    if sys.platform != "linux":
        return
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    most = taken + MEMORY_BYTES
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _words(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:500]


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
