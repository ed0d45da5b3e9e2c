"""The user's agent and reward functions: imported, run once, and failures put into words.

Runs in the user's interpreter, in the processes of `host.py` and of the sandbox. Needs only Python
3.9.
"""

import asyncio
import contextvars
import gc
import importlib.util
import inspect
import json
import os
import shlex
import signal
import sys
import traceback

from host_results import Failure, last_line, number, read_result


class Model:
    """Second argument of the user's `rollout(scenario, model)`: base URL, API key and name of the
    model's endpoint, and `scratch`, a folder for the files of this rollout."""

    def __init__(self, base_url, api_key, name, scratch):
        self.base_url = base_url
        self.api_key = api_key
        self.name = name
        self.scratch = scratch


class AgentCode:
    """Code of a project: `load` it, then run `attempt` once per rollout.

    `file` or `command` is "-"; `limit` is the maximum number of bytes that a command prints.
    """

    def __init__(self, project, file, command, limit):
        self.project = project
        self.file = file
        self.command = command
        self.limit = limit
        self.groups = set()
        """Process groups of running commands."""
        self.agent = None
        self.rewards = None

    def load(self, agent=True, rewards=True):
        """Import the agent, and the reward functions if the project has any. Raises Failure."""
        sys.path.insert(0, self.project)
        if agent and self.file != "-":
            self.agent = self.function(self.file, "rollout")
        if rewards and os.path.exists(os.path.join(self.project, "rewards.py")):
            self.rewards = self.import_file("rewards.py")

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

    async def answer(self, message, scratch, printed=lambda: "", with_result=False):
        """Run one rollout whose files may lie in the folder `scratch`. Returns ("ok", result) or
        ("error", problem); `printed` returns what the rollout has printed so far. `with_result`
        adds the value that the agent returned."""
        return await self._put_into_words(
            self._answer(message, scratch, printed, with_result), printed
        )

    async def verdict(self, message, scratch):
        """Reward parts by rewards.py of a rollout that has ended, in the form of `answer`."""

        async def score():
            return {"parts": await self.score(message["scenario"], message["result"], scratch)}

        return await self._put_into_words(score(), lambda: "")

    async def _answer(self, message, scratch, printed, with_result):
        result = await self.attempt(message, scratch)
        parts, metrics, turns = read_result(result)
        if self.rewards:
            parts.update(await self.score(message["scenario"], result, scratch))
        answer = {"parts": parts, "metrics": metrics, "turns": turns, "output": printed()}
        return dict(answer, result=result) if with_result else answer

    async def _put_into_words(self, work, printed):
        try:
            return "ok", await work
        except asyncio.CancelledError:
            return "error", {"code": "agent.cancelled", "message": "Cancelled."}
        except Failure as failure:
            text = failure.problem["detail"] + "\n" + printed()
            failure.problem["detail"] = text[-8000:]
            return "error", failure.problem
        except BaseException as error:
            text = printed()
            return "error", {
                "code": "agent.raised",
                "message": "The agent raised %s." % error_text(error),
                "hint": "",
                "where": place(error, self.project),
                "detail": (detail(error) + ("\nPrinted:\n" + text if text else ""))[-8000:],
            }

    async def attempt(self, message, scratch):
        """Run the agent once, and return its result."""
        scenario = message["scenario"]
        if self.command != "-":
            return await self.run_command(message, scratch)
        model = Model(message["base_url"], message["api_key"], message["model"], scratch)
        if inspect.iscoroutinefunction(self.agent):
            return await self.agent(scenario, model)
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: context.run(self.agent, scenario, model))

    async def run_command(self, message, scratch):
        environment = dict(
            os.environ,
            OPENAI_BASE_URL=message["base_url"],
            OPENAI_API_KEY=message["api_key"],
            OPENAI_MODEL=message["model"],
            ANTHROPIC_BASE_URL=message["base_url"][: -len("/v1")],
            ANTHROPIC_API_KEY=message["api_key"],
            ANTHROPIC_MODEL=message["model"],
            ATELIER_SCENARIO=json.dumps(message["scenario"]),
            ATELIER_SCRATCH=scratch,
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

    async def score(self, scenario, result, scratch):
        """Reward parts by every public function of rewards.py. A function with a third parameter
        gets the folder `scratch`."""
        parts = {}
        for name, function in list(vars(self.rewards).items()):
            own = getattr(function, "__module__", "") == "rewards"
            if name.startswith("_") or not inspect.isfunction(function) or not own:
                continue
            more = (scratch,) if len(inspect.signature(function).parameters) > 2 else ()
            value = function(scenario, result, *more)
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
