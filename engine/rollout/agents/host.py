"""Agent host: runs the user's agent in the user's interpreter. Needs only Python 3.9.

usage: host.py PROJECT FILE COMMAND LIMIT LINE LIFE   (FILE or COMMAND is "-")

Messages are JSON lines over the descriptor LINE. `run` starts a rollout, `cancel` ends it. Rollouts
are concurrent: `async def rollout` on one event loop, plain `def rollout` in threads, commands as
processes. Output of a rollout is captured, limited in size, and sent with its result.
"""

import asyncio
import contextvars
import importlib.util
import io
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

from host_agent import AgentCode
from host_results import Failure

LIFE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
    "runtime",
    "life_pipe.py",
)

READ_S = 3600.0  # an engine that has not read for that long never will

printed = contextvars.ContextVar("printed", default=None)


class Capture(io.TextIOBase):
    """Replacement of stdout and stderr; text goes to the rollout that printed it, up to a limit."""

    def __init__(self, fallback, limit):
        self.fallback = fallback
        self.limit = limit

    def writable(self):
        return True

    def write(self, text):
        kept = printed.get()
        if kept is None:
            return self.fallback.write(text)
        room = self.limit - kept[1]
        if room > 0:
            kept[0].append(text[:room])
            kept[1] += len(text)
        return len(text)

    def flush(self):
        self.fallback.flush()


class Host:
    def __init__(self, code, line):
        self.code = code
        self.line = line
        self.send_lock = threading.Lock()
        self.running = {}

    async def serve(self):
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(256))
        reader, _ = await asyncio.open_connection(sock=self.line.dup(), limit=64 * 2**20)
        self.line.settimeout(READ_S)  # asyncio made it non-blocking: wait until all of it is sent
        while True:
            line = await reader.readline()
            if not line:
                self.leave()
            message = json.loads(line)
            if message["op"] == "cancel":
                task = self.running.get(message["id"])
                if task:
                    task.cancel()
            elif message["op"] == "ping":
                self.send(message["id"], "ok", {})
            elif message["op"] == "load":
                self.load(message)
            else:
                task = loop.create_task(self.run(message))
                self.running[message["id"]] = task
                task.add_done_callback(lambda _, number=message["id"]: self.running.pop(number))

    def leave(self):
        for group in list(self.code.groups):
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os._exit(0)

    def send(self, number, kind, value):
        data = json.dumps({"id": number, kind: value}).encode() + b"\n"
        with self.send_lock:
            self.line.sendall(data)

    def load(self, message):
        try:
            self.code.load()
            self.send(message["id"], "ok", {})
        except Failure as failure:
            self.send(message["id"], "error", failure.problem)

    async def run(self, message):
        kept = [[], 0]
        printed.set(kept)
        try:
            scratch = tempfile.mkdtemp(prefix="atelier-")
        except OSError as error:
            problem = {
                "code": "agent.no_scratch",
                "message": "No scratch folder can be created: %s." % error.strerror,
                "hint": "Free some space in %s." % tempfile.gettempdir(),
            }
            return self.send(message["id"], "error", problem)
        try:
            kind, value = await self.code.answer(message, scratch, lambda: "".join(kept[0]))
            self.send(message["id"], kind, value)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def guarded(life):
    """Fork, and return in the child; the parent stays as its guardian, which kills whatever the
    child leaves behind. `life` (int) is the descriptor of a pipe that reaches end of file when the
    engine exits."""
    spec = importlib.util.spec_from_file_location("atelier_life", LIFE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.fork_under_guardian(life)
    os.close(life)


def main():
    project, file, command, limit, line, life = sys.argv[1:7]
    sys.path.pop(0)  # our own folder: its names (agents, chat …) are not for the agent's imports
    for name in ("host_agent", "host_results"):
        del sys.modules[name]
    os.chdir(project)
    guarded(int(life))
    code = AgentCode(project, file, command, int(limit))
    host = Host(code, socket.socket(fileno=int(line)))
    sys.stdout = Capture(sys.__stdout__, int(limit))
    sys.stderr = Capture(sys.__stderr__, int(limit))
    asyncio.run(host.serve())


if __name__ == "__main__":
    main()
