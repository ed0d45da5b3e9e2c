"""Fixes a bug in a small repository, with a shell and an editor.

The repository of the scenario is written into the scratch folder of the rollout. The visible tests run after every edit;
the rollout ends when they pass, when the model calls no tool, or after `turns` answers. The reward comes from rewards.py,
which runs other tests outside of the sandbox in which this file and the model's commands run.
"""

import asyncio
import json
import os
import shlex
import signal
import sys
from pathlib import Path

import openai

SYSTEM = "Fix the bug, so that tests.py passes."
REPOSITORY, TESTS = "repository", "tests.py"
COMMAND_S, MOST_OUTPUT = 20, 4000
"""Time limit of a command in seconds; characters of its output that the model sees."""
PASS = "tests.py passes."
METRICS = ("turns", "commands", "edits", "wrong_calls", "visible_tests", "too_long")


def tool(name, description, required, **properties):
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
TOOLS = [
    tool("run", "Run a shell command.", ["command"], command=TEXT),
    tool("edit", "Replace a line, or the lines up to last.", ["file", "line", "text"],
         file=TEXT, line=NUMBER, text=TEXT, last=NUMBER),
]  # fmt: skip


async def rollout(scenario, model):
    folder = Path(model.scratch) / REPOSITORY
    write(folder, scenario["files"])
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": describe(scenario)}]
    metrics = dict.fromkeys(METRICS, 0)
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        while metrics["turns"] < scenario["turns"] and not metrics["visible_tests"]:
            try:
                answer = await client.chat.completions.create(model=model.name, messages=messages, tools=TOOLS)
            except openai.BadRequestError as error:
                if error.code != "gateway.context_full":
                    raise
                metrics["too_long"] = 1  # the files are judged as they are
                break
            message = answer.choices[0].message
            messages.append(message)
            metrics["turns"] += 1
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                said = await use(folder, call.function, metrics)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
    return {"metrics": metrics}


def write(folder, files):
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def describe(scenario):
    """The file, where the scenario names one to show, else the names of all files; and how the visible tests fail."""
    shown = scenario.get("show")
    if shown:
        lines = scenario["files"][shown].splitlines()
        about = [shown, *(f"{number} {line}" for number, line in enumerate(lines, 1))]
    else:
        about = ["Files: " + ", ".join(sorted(scenario["files"]))]
    return "\n".join([*about, scenario["fails"]])


async def use(folder, function, metrics):
    """What a tool says to the model; a call that does not fit is answered and counted."""
    try:
        arguments = json.loads(function.arguments)
        if function.name == "run":
            metrics["commands"] += 1
            return (await run(folder, str(arguments["command"])))[-MOST_OUTPUT:] or "no output"
        if function.name == "edit":
            line = int(arguments["line"])
            edit(folder, str(arguments["file"]), line, str(arguments["text"]), int(arguments.get("last", line)))
            metrics["edits"] += 1
            return await visible_tests(folder, metrics)
        problem = f"There is no tool {function.name}."
    except LookupError as error:
        problem = str(error.args[0]) if not isinstance(error, KeyError) else f"The argument {error} is missing."
    except (ValueError, TypeError, OverflowError, OSError) as error:
        problem = f"That does not work: {type(error).__name__}."
    metrics["wrong_calls"] += 1
    return problem


def edit(folder, name, line, text, last):
    """Replace the lines `line` to `last`, from 1. A text without indentation gets that of the first line that it replaces.
    Raises LookupError if there is no such file or line."""
    file = (folder / name).resolve()
    if not file.is_relative_to(folder.resolve()) or not file.is_file():
        raise LookupError(f"There is no file {name}.")
    lines = file.read_text(encoding="utf-8").splitlines()
    if not 1 <= line <= last <= len(lines):
        raise LookupError(f"{name} has the lines 1 to {len(lines)}.")
    replaced = lines[line - 1]
    if text and not text[0].isspace():
        text = replaced[: len(replaced) - len(replaced.lstrip())] + text
    lines[line - 1 : last] = text.splitlines()
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


async def visible_tests(folder, metrics):
    """Last failure of the visible tests in two lines, or that they pass."""
    output = await run(folder, f"{shlex.quote(sys.executable)} {TESTS} && echo {PASS}")
    lines = [line.strip() for line in output.strip().splitlines()]
    if lines and lines[-1] == PASS:
        metrics["visible_tests"] = 1
        return PASS
    return brief(lines)


def brief(lines):
    """The failed assertion of a traceback and its last line."""
    failed = [line for line in lines if line.startswith("assert ")]
    return "\n".join([*failed[-1:], *lines[-1:]])[-MOST_OUTPUT:]


async def run(folder, command):
    """Output of a shell command. It ends after COMMAND_S seconds, or once it has printed too much."""
    process = await asyncio.create_subprocess_shell(
        command, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    output, end = b"", ""
    try:
        async with asyncio.timeout(COMMAND_S):
            while part := await process.stdout.read(65536):
                output += part
                if len(output) > 20 * MOST_OUTPUT:
                    end = "\nended: too much output"
                    break
            else:
                await process.wait()
    except TimeoutError:
        end = f"\nended after {COMMAND_S} s"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        await process.wait()
    return output.decode(errors="replace").strip() + end
