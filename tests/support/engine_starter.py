"""Starter of engines and commands, forked from a process with all imports.

A separate engine imports the server for seconds, and torch and transformers again for its first
policy. Here one process per test session has imported them; for each engine it forks a process,
which forks the engine's fork server and then runs the engine. Everything else is as with any
engine; `test_lifecycle` starts one by exec.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from engine.policy import fork_server
from engine.policy.fork_server import INHERITED
from engine.policy.worker import TORCH, VARIABLES, TorchPolicy, peak_rates
from engine.runtime.closing import closing
from engine.runtime.life_pipe import adopt_orphans
from engine.runtime.preloaded import serve_forks, show_command
from engine.runtime.variables import allowed_environment

ROOT = Path(__file__).parents[2]
DESCRIPTORS = 2
LARGEST = 2**17
RATES = 1.5e11, 1.5e10
"""Peak rates that engines assume instead of measuring them, which would take half a second each.

`test_worker` measures them.
"""
PADDING = "-" * 400
"""Space in the command line for the command lines of engine and policy processes."""


class Started:
    """Engine process, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, starter: "Starter", pid: int, stdout: Any) -> None:
        self._starter, self.pid, self.stdout = starter, pid, stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._starter.ended(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._starter.ended(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Starter:
    """Client of the process that starts engines; that process ends with this one."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._codes: dict[int, int] = {}
        self._variables = _lasting(allowed_environment())
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), PADDING],
                cwd=ROOT,
                env=allowed_environment(VARIABLES) | {"OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def fits(self) -> bool:
        """Whether libraries would still be loaded with the same variables."""
        return self._variables == _lasting(allowed_environment())

    def start(
        self, argv: Sequence[str], stderr: int, environment: Mapping[str, str] | None = None
    ) -> Started:
        """Start `python -m engine …`, usually with the variables of this process; its stdout is a
        pipe."""
        read, write = os.pipe()
        variables = dict(os.environ if environment is None else environment)
        request = json.dumps({"argv": list(argv), "environment": variables})
        with self._lock:
            socket.send_fds(self._line, [request.encode()], [write, stderr])
            os.close(write)
            while "begun" not in (answer := self._answer()):
                pass
        return Started(self, answer["begun"], os.fdopen(read, "rb"))

    def fork_server(self) -> str:
        """Start a fork server as a child of this process; returns the value of `INHERITED`."""
        adopt_orphans()
        requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        life, ours = os.pipe()
        with self._lock, theirs:
            socket.send_fds(self._line, [b"{}"], [theirs.fileno(), life])
            os.close(life)
            while "server" not in (answer := self._answer()):
                pass
        return f"{requests.detach()},{ours},{answer['server']}"

    def ended(self, pid: int, timeout_s: float | None = 0) -> int | None:
        """Exit code of an engine, as soon as it has one; None after the time. Other threads may
        start engines meanwhile."""
        if pid not in self._codes and not has_exited(pid, timeout_s):
            return None
        with self._lock:
            while pid not in self._codes:
                self._answer()
            return self._codes[pid]

    def _answer(self) -> dict[str, int]:
        data = self._line.recv(LARGEST)
        assert data, "the engine starter has ended"
        answer: dict[str, int] = json.loads(data)
        if "ended" in answer:
            self._codes[answer["ended"]] = answer["code"]
        return answer


def _lasting(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without folders, which every test sets."""
    return {k: v for k, v in variables.items() if not k.startswith("XDG_") and k != "HOME"}


def has_exited(pid: int, timeout_s: float | None) -> bool:
    """Wait for the exit of any process; False after the time."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], timeout_s)[0])
    finally:
        os.close(watched)


_starter: Starter | None = None
_usual: dict[str, str] | None = None


def remember_variables() -> None:
    """Take the variables of this process as those of the session, before any test sets others."""
    global _usual
    _usual = _lasting(allowed_environment())


def starter() -> Starter | None:
    """Return the session's starter on systems where engines fork their policies; None while a test
    has set variables that libraries read when they are loaded."""
    global _starter
    if sys.platform != "linux" or _usual not in (None, _lasting(allowed_environment())):
        return None
    if _starter is None:
        _starter = Starter()
    return _starter if _starter.fits() else None


def starter_pid() -> int | None:
    return _starter.process.pid if _starter else None


@contextlib.asynccontextmanager
async def forking() -> AsyncIterator[None]:
    """Fork torch processes during the block, from a process that has imported torch already."""
    if found := starter():
        os.environ[INHERITED] = found.fork_server()
    async with fork_server.forking():
        yield


@contextlib.asynccontextmanager
async def forked_policy(log: Path) -> AsyncIterator[TorchPolicy]:
    """Policy process without a model, forked where that is possible."""
    async with forking():
        started = await TorchPolicy.start(log, "tiny", start=fork_server.launcher())
        async with closing(started) as policy:
            yield policy


def run_command(
    *arguments: str, environment: Mapping[str, str] | None = None, timeout_s: float = 120
) -> "subprocess.CompletedProcess[str]":
    """Run `python -m engine ARGUMENTS` to its end, forked where that is possible."""
    argv = [sys.executable, "-m", "engine", *arguments]
    ready = starter()
    if ready is None:
        return subprocess.run(
            argv, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, env=environment
        )
    with tempfile.TemporaryFile("w+") as errors:
        process = ready.start(argv, errors.fileno(), environment)
        late = threading.Timer(timeout_s, process.kill)
        late.start()
        with process.stdout as output:
            text = output.read().decode()
        code = process.wait(timeout_s)
        late.cancel()
        late.join()
        errors.seek(0)
        return subprocess.CompletedProcess(argv, code, text, errors.read())


def main() -> None:
    """Start an engine for each request, and report the exit code of each."""
    import engine.cli.commands.serve  # noqa: F401 - what an engine imports, before the fork
    from engine.policy.torch import preloaded

    line = socket.socket(fileno=int(sys.argv[1]))
    preloaded.prepare()
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([line.fileno(), ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            report_ended(line)
        if line.fileno() in ready:
            data, descriptors, _, _ = socket.recv_fds(line, LARGEST, DESCRIPTORS)
            if not data:
                return
            request = json.loads(data)
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor in (ended, wake, read):
                    os.close(descriptor)
                line.close()
                if not request:
                    become_fork_server(descriptors, write)
                os.close(write)
                become_engine(request, descriptors)
            for descriptor in (write, *descriptors):
                os.close(descriptor)
            with os.fdopen(read) as answer:
                server = answer.read()  # at once the end of the file, if it becomes an engine
            started = {"begun": pid} if request else {"server": int(server)}
            line.send(json.dumps(started).encode())


def report_ended(line: socket.socket) -> None:
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(found[1])
            line.send(json.dumps({"ended": found[0], "code": code}).encode())
    except ChildProcessError:
        return


def become_fork_server(descriptors: list[int], pid: int) -> NoReturn:
    """Leave a fork server behind, an orphan for the test process, with its PID in the pipe."""
    requests, life = descriptors
    if server := os.fork():
        os.write(pid, str(server).encode())
        os._exit(0)
    os.close(pid)
    os.setsid()
    serve_forks(socket.socket(fileno=requests), life, "torch")
    os._exit(0)


def become_engine(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Run the engine or command in this process; an engine is the parent of its fork server."""
    code = 1
    try:
        stdout, stderr = descriptors
        os.dup2(stderr, 2)
        os.close(stderr)
        inherited = start_fork_server(stdout) if "serve" in request["argv"] else {}
        os.dup2(stdout, 1)
        os.close(stdout)
        os.environ.clear()
        os.environ.update(request["environment"] | inherited)
        code = run_engine(request["argv"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - the interpreter would print it, and exit with 1
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def start_fork_server(stdout: int) -> dict[str, str]:
    """Fork the fork server of this engine; returns the variable that describes it."""
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        for descriptor in (stdout, ours):
            os.close(descriptor)
        requests.close()
        serve_forks(theirs, life, "torch")
        os._exit(0)
    for descriptor in (theirs.detach(), life):
        os.close(descriptor)
    return {INHERITED: f"{requests.detach()},{ours},{pid}"}


def run_engine(argv: list[str]) -> int:
    """Do what `python -m engine ...` does, with its command line."""
    from engine.cli.main import main as command_line

    peak_rates.update({(dtype, "", *TORCH): RATES for dtype in ("auto", "float32", "bfloat16")})
    show_command("\0".join(argv))
    sys.argv = argv[2:]
    time.tzset()
    return command_line()


if __name__ == "__main__":
    main()
