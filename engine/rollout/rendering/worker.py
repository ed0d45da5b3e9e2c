"""Renderer process: runs chat templates and tokenizers of models, which are untrusted, with limits
on time and memory.

usage: python -m engine.rollout.rendering.worker SOCKET

Frames in both directions: lengths of head and tail (two big-endian 32-bit numbers), the head as
JSON, the tail as bytes (token ids, 32 bits each). A request that takes too long ends the process by
a signal that identifies the part: SIGVTALRM rendering, SIGPROF tokenising.
"""

import contextlib
import datetime
import json
import resource
import secrets
import signal
import socket
import struct
import sys
from array import array
from typing import Any, NamedTuple

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

MOST_CHARS = 32_000_000
"""Largest length of a rendered text in characters."""
VOLATILE = ("strftime_now", "random")
"""Names by which a template can render equal messages differently."""
Messages = list[dict[str, Any]]


class TooLong(Exception):
    """Error for a rendered text that is longer than `MOST_CHARS`."""


class Generation(Extension):
    """`{% generation %} … {% endgeneration %}`: mark of the assistant's text in Hugging Face
    templates (transformers, `apply_chat_template(return_assistant_tokens_mask=True)`)."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        end = nodes.TemplateData(self.environment.globals["answer_ends"])
        return [*body, nodes.Output([end], lineno=line)]


class Rendered(NamedTuple):
    text: str
    answer_end: int | None
    """Offset in the text at which the last answer ends, if the template marks answers."""


class Template:
    """Compiled chat template. Raises jinja2.TemplateSyntaxError for invalid source."""

    def __init__(self, source: str, special: dict[str, str]) -> None:
        self._special = special
        self._mark = f"\ue0fe{secrets.token_hex(8)}\ue0ff"  # unknown to whoever writes messages
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols],
            optimized=False,  # else constants are computed while it loads
        )
        environment.globals["answer_ends"] = self._mark
        environment.add_extension(Generation)
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        self._template = environment.from_string(source)
        del environment.globals["answer_ends"]
        self.volatile = any(name in source for name in VOLATILE)

    def render(self, messages: Messages, tools: Messages, answer: bool) -> Rendered:
        """Render messages as text; with `answer`, the text ends where the next assistant text
        begins. Raises TooLong, and any exception of the template."""
        parts, length = [], 0
        for part in self._template.generate(
            messages=messages, tools=tools or None, add_generation_prompt=answer, **self._special
        ):
            length += len(part)
            if length > MOST_CHARS:
                raise TooLong
            parts.append(part)
        marked = "".join(parts)
        if self._mark not in marked:
            return Rendered(marked, None)
        before, _, after = marked.rpartition(self._mark)
        before = before.replace(self._mark, "")
        return Rendered(before + after, len(before))

    def fill(self, messages: Messages, answers: dict[int, str], tools: Messages) -> str:
        """Render the prompt, with the messages at the positions in `answers` replaced by these raw
        texts exactly as given. A template may change its input (strip it, remove thoughts), so each
        message is rendered as a random placeholder, which is then replaced by the raw text."""
        nonce = secrets.token_hex(8)
        shown, marks = list(messages), []
        for number, place in enumerate(answers):
            marks.append(f"\u2402{nonce}-{number}\u2403")
            shown[place] = {"role": "assistant", "content": marks[-1]}
        text = self.render(shown, tools, answer=True).text
        for mark, raw in zip(marks, answers.values(), strict=True):
            text = text.replace(mark, raw, 1)
        return text


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


RENDER_S = 3.0
"""CPU seconds for one rendering."""
LOAD_S = 20.0
ENCODE_S = 3.0
"""CPU seconds for one tokenising, plus one second for each `CHARS_PER_S` characters."""
CHARS_PER_S = 100_000
MEMORY_BYTES = 512 * 2**20
"""Bytes that a request may use in addition to the loaded model."""
FRAME = struct.Struct("!II")
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
        """Return (header with text and whether it extends `known`, tokens), with only the part
        after `known` if the prompt begins with `known`. The header is an error and the tokens None
        if the prompt cannot fit into `most_tokens`. `answers`: raw texts by message position."""
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
    """Limit the CPU time of the block: beyond it the kernel ends the process, which a template
    cannot prevent."""
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)


def serve(line: socket.socket) -> None:
    """Answer render requests on the socket `line` until its other end is closed."""
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
