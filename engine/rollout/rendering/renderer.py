"""Client of the renderer process (worker.py); one process for each model in use.

The process starts at the first request, is replaced after it exceeds a limit, and ends with
`close`. Requests are sequential. `ask` blocks and is for threads; on the event loop, await
`request`.
"""

import asyncio
import hashlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from array import array
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from engine.protocol.problems import AtelierError, ModelError, RolloutError
from engine.rollout.rendering.worker import ENCODE_S, FRAME, LOAD_S, MEMORY_BYTES, RENDER_S, read
from engine.runtime.paths import ROOT
from engine.runtime.variables import allowed_environment

GRACE_S = 30.0
"""Seconds of wall-clock time allowed beyond the CPU time limit, since the machine may be busy."""
CHARS_PER_S = 20_000
OVERRUNS = (-signal.SIGVTALRM, -signal.SIGPROF)
DIRECT_BYTES = 2**18
CACHE_BYTES = 16 * 2**20
MOST_FRAME = 2**28
_living: "weakref.WeakSet[RenderClient]" = weakref.WeakSet()


class Answer(NamedTuple):
    head: dict[str, Any]
    tokens: list[int]


class RenderClient:
    """Client that sends requests to one renderer process. May be used from several threads."""

    def __init__(self, name: str, load: dict[str, Any]) -> None:
        """`name` is the model's name in messages; `load` is the first request to each new
        process."""
        self._name, self._load = name, load
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._turn = asyncio.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False
        self._cache: OrderedDict[bytes, Answer] = OrderedDict()
        self._cached_bytes = 0
        _living.add(self)

    @property
    def pid(self) -> int | None:
        return self._worker.process.pid if self._worker else None

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            self._end()

    def ask(self, op: str, **fields: Any) -> Answer:
        """Send operation `op` with these arguments to the renderer process, and wait for its
        answer. Raises RolloutError if the template refuses the messages or exceeds a limit,
        ModelError if it cannot be loaded."""
        return self._locked(_encoded(op, fields))

    async def request(self, op: str, *, cached: bool = False, **fields: Any) -> Answer:
        """Send an operation like `ask`, without blocking the event loop. With `cached`, an equal
        request is answered from a cache, unless the template gives varying results (such as a
        date)."""
        data = _encoded(op, fields)
        key = hashlib.blake2b(data, digest_size=16).digest() if cached else b""
        if cached and (known := self._cache.get(key)):
            self._cache.move_to_end(key)
            return known
        async with self._turn:
            answer = await self._awaited(data)
        if cached and not answer.head["volatile"]:
            self._keep(key, answer)
        return answer

    async def _awaited(self, data: bytes) -> Answer:
        """Exchange on the event loop if the process is idle: a thread costs more than most
        renderings. Long requests and failed exchanges go to a thread."""
        if self._worker and len(data) < DIRECT_BYTES and self._lock.acquire(blocking=False):
            exchange = asyncio.ensure_future(self._direct(self._worker, data))
            answer = await asyncio.shield(exchange)  # half an answer must not stay on the line
            if answer is not None:
                return self._checked(answer)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="renderer")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._locked, data)

    async def _direct(self, worker: "_Worker", data: bytes) -> Answer | None:
        """Exchange one request and release the lock; None if the process ended without exceeding a
        limit. Raises RolloutError if it exceeded one."""
        try:
            return await worker.exchange_on_loop(data, _clock_s(data))
        except asyncio.CancelledError:
            self._end()
            raise
        except TimeoutError:
            await asyncio.to_thread(self._end)
            raise self._overrun(-signal.SIGVTALRM) from None
        except (OSError, ValueError, EOFError):
            code = await asyncio.to_thread(self._end)
            if code in OVERRUNS:
                raise self._overrun(code) from None
            return None
        finally:
            self._lock.release()

    def _keep(self, key: bytes, answer: Answer) -> None:
        if key in self._cache:
            return
        self._cache[key] = answer
        self._cached_bytes += _size(answer)
        while self._cached_bytes > CACHE_BYTES:
            self._cached_bytes -= _size(self._cache.popitem(last=False)[1])

    def _locked(self, data: bytes) -> Answer:
        with self._lock:
            return self._checked(self._exchanged(data))

    def _exchanged(self, data: bytes) -> Answer:
        if self._closed:
            raise RolloutError.of(
                "gateway.closed", f"The chat template of {self._name} was unloaded."
            )
        for _ in range(2):
            worker = self._worker or self._start()
            try:
                return worker.exchange(data, _clock_s(data))
            except TimeoutError:
                self._end()
                raise self._overrun(-signal.SIGVTALRM) from None
            except (OSError, ValueError, EOFError):
                code = self._end()
                if code in OVERRUNS:
                    raise self._overrun(code) from None  # else somebody else ended it: once more
        raise self._overrun(code)

    def _checked(self, answer: Answer) -> Answer:
        """Return the answer unless it is an error. Raises RolloutError."""
        error = answer.head.get("error")
        if error == "memory":  # its process has ended, or is about to
            raise self._overrun(None)
        if error is not None:
            raise self._refused(error, answer.head)
        return answer

    def _start(self) -> "_Worker":
        worker = _Worker()
        self._worker = worker
        try:
            head = worker.exchange(
                json.dumps({"op": "load", **self._load}).encode(), LOAD_S + GRACE_S
            ).head
        except (OSError, ValueError, EOFError):
            code = self._end()
            late = code == -signal.SIGVTALRM
            why = f"loading took more than {RENDER_S:g} s" if late else f"exit {code}"
            head = {"error": "ended", "message": why}
        if "error" in head:
            self._end()
            raise self._not_loaded(head)
        return worker

    def _not_loaded(self, head: dict[str, Any]) -> AtelierError:
        line = head.get("line")
        return ModelError.of(
            "model.bad_chat_template",
            f"The chat template or tokenizer of {self._name} cannot be used: "
            f"{head.get('message', 'it needs too much memory')}.",
            "Use the files of the original model.",
            where=self._name + (f", line {line}" if line else ""),
        )

    def _end(self) -> int | None:
        """End the process; returns its exit status, as subprocess reports it."""
        worker, self._worker = self._worker, None
        return worker.end() if worker else None

    def _overrun(self, code: int | None) -> RolloutError:
        memory = f"took more than {MEMORY_BYTES // 2**20} MB of memory"
        what, failed = {
            -signal.SIGVTALRM: ("chat template", f"took more than {RENDER_S:g} s"),
            -signal.SIGPROF: ("tokenizer", f"took more than {ENCODE_S:g} s"),
            None: ("chat template", memory),
        }.get(code, ("chat template", f"took too long or crashed (exit {code})"))
        return RolloutError.of(
            "model.template_overran",
            f"The {what} of {self._name} {failed} for one prompt.",
            "Use the template of the original model, or send fewer and shorter messages.",
            where=self._name,
        )

    def _refused(self, error: str, head: dict[str, Any]) -> RolloutError:
        if error == "too_many_chars":
            return RolloutError.of(
                "gateway.context_full",
                f"The prompt has {int(head['message']):,} characters, too many to fit in "
                "model.max_context tokens.",
                "Raise model.max_context or shorten what the agent sends.",
            )
        if error == "too_long":
            return RolloutError.of(
                "model.template_overran",
                f"The chat template of {self._name} renders a prompt without end.",
                "Use the chat template of the original model.",
                where=self._name,
            )
        if error == "unreadable":
            return RolloutError.of(
                "gateway.tokenizer_refused",
                f"The tokenizer of {self._name} cannot encode this text: {head['message']}.",
                "Check the messages for lone surrogates (invalid Unicode).",
            )
        return RolloutError.of(
            "gateway.template_refused",
            f"The model's chat template rejects these messages: {head['message']}",
            "Check the roles of the messages and their order.",
        )


class _Worker:
    """Renderer process and its socket."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "engine.rollout.rendering.worker", str(theirs.fileno())],
                cwd=ROOT,
                env=allowed_environment({"TOKENIZERS_PARALLELISM": "false"}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        self._finalizer = weakref.finalize(self, _end, self._line, self.process)

    def exchange(self, data: bytes, limit_s: float) -> Answer:
        """Send a request and read its answer, for at most `limit_s` seconds. Raises OSError,
        ValueError or EOFError if none arrives in time."""
        end = time.monotonic() + limit_s
        self._line.settimeout(limit_s)
        self._line.sendall(FRAME.pack(len(data), 0) + data)
        lengths = FRAME.unpack(self._read(FRAME.size, end))
        if sum(lengths) > MOST_FRAME:
            raise ValueError("its answer is too long")
        head = json.loads(self._read(lengths[0], end))
        tokens = array("I", self._read(lengths[1], end))
        return Answer(head, tokens.tolist())

    async def exchange_on_loop(self, data: bytes, limit_s: float) -> Answer:
        """Send a request and read its answer like `exchange`, without blocking the event loop;
        nothing else may use the socket meanwhile. Raises TimeoutError, too."""
        loop = asyncio.get_running_loop()
        self._line.setblocking(False)
        async with asyncio.timeout(limit_s):
            await loop.sock_sendall(self._line, FRAME.pack(len(data), 0) + data)
            header = await self._receive(loop, FRAME.size)
            lengths = FRAME.unpack_from(header)
            if sum(lengths) > MOST_FRAME:
                raise ValueError("its answer is too long")
            rest = await self._receive(loop, FRAME.size + sum(lengths), header)
        head, tail = rest[FRAME.size : FRAME.size + lengths[0]], rest[FRAME.size + lengths[0] :]
        return Answer(json.loads(head), array("I", tail).tolist())

    async def _receive(
        self, loop: asyncio.AbstractEventLoop, count: int, received: bytes = b""
    ) -> bytes:
        """Receive until at least `count` bytes are there, including `received`; an answer arrives
        in parts."""
        buffer = bytearray(received)
        while len(buffer) < count:
            part = await loop.sock_recv(self._line, 2**18)
            if not part:
                raise EOFError
            buffer += part
        return bytes(buffer)

    def _read(self, count: int, end: float) -> bytes:
        self._line.settimeout(max(0.001, end - time.monotonic()))
        found = read(self._line, count)
        if found is None:
            raise EOFError
        return found

    def end(self) -> int:
        self._finalizer()
        return self.process.returncode


def _end(line: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    """Close the socket and wait for the process; one that exits by itself keeps its exit status."""
    line.close()
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _encoded(op: str, fields: dict[str, Any]) -> bytes:
    return json.dumps({"op": op, **fields}).encode()


def _clock_s(data: bytes) -> float:
    """Wall-clock timeout of an answer in seconds."""
    return GRACE_S + RENDER_S + ENCODE_S + len(data) / CHARS_PER_S


def _size(answer: Answer) -> int:
    return 500 + 8 * len(answer.tokens) + 4 * len(answer.head.get("text", ""))


def living_pids() -> list[int]:
    """PIDs of all renderer processes that this process has started and that still run."""
    return [pid for client in list(_living) if (pid := client.pid) is not None]
