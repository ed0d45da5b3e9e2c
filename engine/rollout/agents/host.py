"""Agent host: runs the user's agent in the user's interpreter. Needs only Python 3.9.

usage: host.py PROJECT FILE COMMAND LIMIT LINE LIFE   (FILE or COMMAND is "-")

Messages are JSON lines over the descriptor LINE. `run` starts a rollout, `cancel` ends it. Rollouts
are concurrent: `async def rollout` on one event loop, plain `def rollout` in threads, commands as
processes. Output of a rollout is captured, limited in size, and sent with its result.
"""

import asyncio
import contextvars
import gc
import importlib.util
import inspect
import io
import json
import os
import shlex
import signal
import socket
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

from host_results import Failure, last_line, number, read_result

LIFE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
    "runtime",
    "life_pipe.py",
)

READ_S = 3600.0  # an engine that has not read for that long never will

printed = contextvars.ContextVar("printed", default=None)


class Model:
    """Second argument of the user's `rollout(scenario, model)`: base URL, API key and name of the
    model's endpoint."""

    def __init__(self, base_url, api_key, name):
        self.base_url = base_url
        self.api_key = api_key
        self.name = name


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
    def __init__(self, project, file, command, limit, line):
        self.project = project
        self.file = file
        self.command = command
        self.limit = limit
        self.line = line
        self.send_lock = threading.Lock()
        self.running = {}
        self.groups = set()
        self.agent = None
        self.rewards = None

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
        for group in list(self.groups):
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
            sys.path.insert(0, self.project)
            if self.file != "-":
                self.agent = self.function(self.file, "rollout")
            if os.path.exists(os.path.join(self.project, "rewards.py")):
                self.rewards = self.import_file("rewards.py")
            self.send(message["id"], "ok", {})
        except Failure as failure:
            self.send(message["id"], "error", failure.problem)

    def import_file(self, name):
        path = os.path.join(self.project, name)
        if not os.path.exists(path):
            raise Failure(
                "agent.missing",
                "There is no %s in the project." % name,
                "Create it with a function `rollout(scenario, model)`, or set agent.file.",
                path,
            )
        thresholds = gc.get_threshold()
        try:
            spec = importlib.util.spec_from_file_location(os.path.splitext(name)[0], path)
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            gc.set_threshold(0)  # collections take a sixth of the time to import a client
            spec.loader.exec_module(module)
            return module
        except BaseException as error:
            raise Failure(
                "agent.does_not_import",
                "%s cannot be imported: %s" % (name, error_text(error)),
                "Fix the import, or set agent.python to an interpreter with the packages.",
                place(error, self.project) or name,
                detail(error),
            ) from error
        finally:
            if gc.get_threshold()[0] == 0:  # else the agent has set its own
                gc.set_threshold(*thresholds)

    def function(self, file, name):
        function = getattr(self.import_file(file), name, None)
        if not callable(function):
            raise Failure(
                "agent.no_rollout",
                "%s has no function `%s(scenario, model)`." % (file, name),
                "Define the function; it may be async.",
                file,
            )
        return function

    async def run(self, message):
        kept = [[], 0]
        printed.set(kept)
        try:
            result = await self.attempt(message)
            parts, metrics, turns = read_result(result)
            if self.rewards:
                parts.update(await self.score(message, result))
            answer = {"parts": parts, "metrics": metrics, "turns": turns}
            answer["output"] = "".join(kept[0])
            self.send(message["id"], "ok", answer)
        except asyncio.CancelledError:
            self.send(message["id"], "error", {"code": "agent.cancelled", "message": "Cancelled."})
        except Failure as failure:
            failure.problem["detail"] = (failure.problem["detail"] + "\n" + "".join(kept[0]))[
                -8000:
            ]
            self.send(message["id"], "error", failure.problem)
        except BaseException as error:
            text = "".join(kept[0])
            self.send(
                message["id"],
                "error",
                {
                    "code": "agent.raised",
                    "message": "The agent raised %s." % error_text(error),
                    "hint": "",
                    "where": place(error, self.project),
                    "detail": (detail(error) + ("\nPrinted:\n" + text if text else ""))[-8000:],
                },
            )

    async def attempt(self, message):
        scenario = message["scenario"]
        if self.command != "-":
            return await self.run_command(message)
        model = Model(message["base_url"], message["api_key"], message["model"])
        if inspect.iscoroutinefunction(self.agent):
            return await self.agent(scenario, model)
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: context.run(self.agent, scenario, model))

    async def run_command(self, message):
        environment = dict(
            os.environ,
            OPENAI_BASE_URL=message["base_url"],
            OPENAI_API_KEY=message["api_key"],
            OPENAI_MODEL=message["model"],
            ANTHROPIC_BASE_URL=message["base_url"][: -len("/v1")],
            ANTHROPIC_API_KEY=message["api_key"],
            ANTHROPIC_MODEL=message["model"],
            ATELIER_SCENARIO=json.dumps(message["scenario"]),
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(self.command),
                cwd=self.project,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                limit=self.limit + 1,
            )
        except OSError as error:
            raise Failure(
                "agent.command_not_started",
                "The agent's command could not be started: %s." % error.strerror,
                "Check agent.command.",
                self.command,
            ) from error
        self.groups.add(process.pid)
        try:
            output = await self.read_output(process)
            code = await process.wait()
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            await process.wait()
            self.groups.discard(process.pid)
        text = output.decode(errors="replace")
        sys.stdout.write(text)
        if code != 0:
            raise Failure(
                "agent.command_failed",
                "The agent's command exited with code %d." % code,
                "See the output of the command.",
                self.command,
            )
        lines = text.strip().splitlines()
        return last_line(lines[-1] if lines else "")

    async def read_output(self, process):
        output = b""
        while True:
            chunk = await process.stdout.read(65536)
            if not chunk:
                return output
            output += chunk
            if len(output) > self.limit:
                raise Failure(
                    "agent.too_much_output",
                    "The agent's command printed more than %d bytes." % self.limit,
                    "Print less, or raise agent.max_output_bytes.",
                    self.command,
                )

    async def score(self, message, result):
        parts = {}
        for name, function in vars(self.rewards).items():
            own = getattr(function, "__module__", "") == "rewards"
            if name.startswith("_") or not inspect.isfunction(function) or not own:
                continue
            value = function(message["scenario"], result)
            value = await value if inspect.isawaitable(value) else value
            if value is not None:
                parts[name] = number(value, "rewards.py, %s" % name)
        return parts


def error_text(error):
    text = str(error).strip().splitlines()
    return "%s: %s" % (type(error).__name__, text[0][:300]) if text else type(error).__name__


def place(error, project):
    """Describe as `file, line n` where an agent's error occurred: its deepest frame inside the
    folder `project`; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return "%s, line %s" % (os.path.relpath(error.filename, project), error.lineno)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if os.path.abspath(frame.filename).startswith(os.path.abspath(project) + os.sep):
            return "%s, line %d" % (os.path.relpath(frame.filename, project), frame.lineno)
    return ""


def detail(error):
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))[-6000:]


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
    del sys.modules["host_results"]
    os.chdir(project)
    guarded(int(life))
    host = Host(project, file, command, int(limit), socket.socket(fileno=int(line)))
    sys.stdout = Capture(sys.__stdout__, int(limit))
    sys.stderr = Capture(sys.__stderr__, int(limit))
    asyncio.run(host.serve())


if __name__ == "__main__":
    main()
