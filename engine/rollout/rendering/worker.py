"""Renderer process: runs chat templates and tokenizers of models, which are untrusted, with limits
on time and memory.

usage: python -m engine.rollout.rendering.worker SOCKET

Frames in both directions: lengths of head and tail (two big-endian 32-bit numbers), the head as
JSON, the tail as bytes (token ids, 32 bits each). A request that takes too long ends the process by
a signal that identifies the part: SIGVTALRM rendering, SIGPROF tokenising. A process that loads an
image processor (`load_images`) reads images instead.
"""

import contextlib
import json
import resource
import signal
import socket
import struct
import sys
from array import array
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from engine.rollout.rendering.continuation import Recorded, Tokens, continue_recorded
from engine.rollout.rendering.probes import Probe
from engine.rollout.rendering.syntaxes import Syntaxes
from engine.rollout.rendering.template import Template, TooLong

if TYPE_CHECKING:
    from engine.rollout.rendering.image_reader import ImageReader

RENDER_S = 3.0
"""CPU seconds for one rendering."""
LOAD_S = 20.0
ENCODE_S = 3.0
"""CPU seconds for one tokenising, plus one second for each `CHARS_PER_S` characters."""
CHARS_PER_S = 100_000
PARSED_PER_S = 5_000
"""Sampled tokens that a second of parsing is allowed for."""
MEMORY_BYTES = 512 * 2**20
"""Bytes that a request may use in addition to the loaded model."""
FRAME = struct.Struct("!II")
IMAGE_S = 15.0
"""CPU seconds for one image."""
IMAGE_MEMORY_BYTES = 3 * 2**30
"""Bytes that reading an image may use in addition to the loaded image processor."""
LOAD_IMAGES_S = 60.0
"""CPU seconds for loading an image processor, which imports transformers."""
SHRINKING = 4
"""Maximum number of characters that a normalizer may merge into one, for a lower bound of a
prompt's length in tokens."""


class Unreadable(Exception):
    """Error for a text that the tokenizer cannot encode."""


class Renderer:
    """Template and tokenizer of one model."""

    def __init__(self, head: dict[str, Any]) -> None:
        with _limited(signal.ITIMER_VIRTUAL, LOAD_S):
            self._tokenizer = Tokenizer.from_file(head["tokenizer"])
        self._stops, self._placeholder = head["stops"], head["placeholder"]
        added = self._tokenizer.get_added_tokens_decoder()
        names = (self._tokenizer.id_to_token(stop) for stop in head["stops"])
        self._tokens = Tokens(
            stops=[name for name in names if name],
            special=[token.content for token in added.values() if token.special],
        )
        self._syntaxes = Syntaxes(self._tokenizer, head["stops"], head["template"])
        _limit_memory(MEMORY_BYTES)
        with _limited(signal.ITIMER_VIRTUAL, RENDER_S):  # compiling evaluates what is constant
            self._template = Template(head["template"], head["special"])
        longest = max(map(len, self._tokenizer.get_vocab()), default=1)
        self._most_chars = longest * (SHRINKING if self._tokenizer.normalizer else 1)

    def describe(self) -> dict[str, Any]:
        """Behaviour of the template (`probes.Findings`)."""
        with _limited(signal.ITIMER_VIRTUAL, LOAD_S):
            probe = Probe(
                self._template,
                self._syntaxes,
                lambda text: self.encode(text, special=False).tolist(),
                self._stops,
                self._placeholder,
            )
            return probe.describe()._asdict()

    def prompt(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        variables: dict[str, Any],
        recorded: list[Any] | None,
        keep_reasoning: bool,
        most_tokens: int,
    ) -> "tuple[dict[str, Any], array[int] | None]":
        """Return (header with text, whether it extends the recorded tokens and why not, tokens),
        with only the text behind the `recorded` tokens if the prompt continues them. The header is
        an error and the tokens None if the prompt cannot fit into `most_tokens`."""
        with _limited(signal.ITIMER_VIRTUAL, RENDER_S):
            found = continue_recorded(
                self._template,
                messages,
                tools,
                variables,
                Recorded(*recorded) if recorded else None,
                self._tokens,
                keep_reasoning,
            )
        if len(found.text) > most_tokens * self._most_chars:
            return {"error": "too_many_chars", "message": str(len(found.text))}, None
        tokens = self.encode(found.text, special=False)
        return {**found._asdict(), "volatile": self._template.volatile}, tokens

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        answer: bool,
        variables: dict[str, Any],
    ) -> dict[str, Any]:
        with _limited(signal.ITIMER_VIRTUAL, RENDER_S):
            return self._template.render(messages, tools, answer, variables)._asdict()

    def parse(
        self, syntax: str, reasons: bool, tokens: list[int], prompt: list[int], tools: list[Any]
    ) -> dict[str, Any]:
        """Sampled tokens as a `syntaxes.Reply`."""
        with _limited(signal.ITIMER_PROF, ENCODE_S + len(tokens) / PARSED_PER_S):
            reply = self._syntaxes.parser(syntax, reasons)(tokens, prompt, tools)
            thoughts = self._tokenizer.encode(reply.reasoning or "", add_special_tokens=False)
            return reply._replace(reasoning_tokens=len(thoughts.ids))._asdict()

    def encode(self, text: str, special: bool) -> "array[int]":
        with _limited(signal.ITIMER_PROF, ENCODE_S + len(text) / CHARS_PER_S):
            try:
                found = self._tokenizer.encode(text, add_special_tokens=special)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                raise Unreadable(_words(error)) from error  # a panic in Rust is no Exception
        return array("I", found.ids)


def load_images(folder: str) -> "ImageReader":
    """Load the image processor of the model in `folder`."""
    from engine.rollout.rendering.image_reader import ImageReader

    with _limited(signal.ITIMER_VIRTUAL, LOAD_IMAGES_S):
        reader = ImageReader(folder)
    _limit_memory(IMAGE_MEMORY_BYTES)
    return reader


@contextlib.contextmanager
def _limited(timer: int, seconds: float):  # type: ignore[no-untyped-def]
    """Limit the CPU time of the block: beyond it the kernel ends the process, which a template
    cannot prevent."""
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)


def serve(line: socket.socket) -> None:
    """Answer requests on the socket `line` until its other end is closed."""
    renderer: Renderer | None = None
    images: ImageReader | None = None
    while (head := receive(line)) is not None:
        tokens: array[int] | None = None
        try:
            match head.pop("op"):
                case "load":
                    renderer = Renderer(head)
                    answer: dict[str, Any] = {}
                case "load_images":
                    images = load_images(**head)
                    answer = {}
                case "image":
                    assert images is not None
                    with _limited(signal.ITIMER_PROF, IMAGE_S):
                        answer = images.read(**head)
                case "prompt":
                    assert renderer is not None
                    answer, tokens = renderer.prompt(**head)
                case "render":
                    assert renderer is not None
                    answer = renderer.render(**head)
                case "describe":
                    assert renderer is not None
                    answer = renderer.describe()
                case "parse":
                    assert renderer is not None
                    answer = renderer.parse(**head)
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
            answer = {"error": "refused", "message": "it calls itself endlessly"}
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything: it is said
            line_number = getattr(error, "lineno", None)
            answer = {"error": "refused", "message": _words(error), "line": line_number}
        send(line, answer, tokens.tobytes() if tokens is not None else b"")
        if answer.get("error") == "memory":
            return  # what is left of it is not known; a new one is started


def receive(line: socket.socket) -> dict[str, Any] | None:
    """Receive one request from the engine; None if the engine has closed the socket."""
    lengths = read(line, FRAME.size)
    if lengths is None:
        return None
    head = read(line, FRAME.unpack(lengths)[0])
    return None if head is None else json.loads(head)


def send(line: socket.socket, head: dict[str, Any], tail: bytes = b"") -> None:
    data = json.dumps(head).encode()
    line.sendall(FRAME.pack(len(data), len(tail)) + data + tail)


def read(line: socket.socket, count: int) -> bytes | None:
    """Read exactly `count` bytes from a socket; None if it is closed before."""
    parts = bytearray()
    while len(parts) < count:
        part = line.recv(min(count - len(parts), 2**20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _limit_memory(more_bytes: int) -> None:
    """Limit the address space to the current size plus `more_bytes` (Linux only; no limit
    elsewhere)."""
    if sys.platform != "linux":
        return
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    most = taken + more_bytes
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
