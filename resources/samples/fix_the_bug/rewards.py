"""Reward: the share of the hidden tests that the repository passes after the rollout.

Runs outside of the sandbox of the agent, on a copy of its files. Every public function is a reward part. The code that the
model wrote runs in a process of its own (`tested.py`), which gets functions and arguments and answers with results; what
the results should be is known here alone, so no output of that process can claim a test that it does not pass.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from ast import literal_eval
from functools import lru_cache
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY, TESTS = "repository", "tests.py"
MOST_SOURCE, MOST_OUTPUT = 100_000, 200_000
"""Size limits in bytes of a module, and of all results of a repository."""
START_S, TESTS_S = 60, 20
"""Time limits in seconds: of the start of the process, and of all tests."""
READY = b"ready\n"


def hidden_tests(scenario, result, scratch):
    """Share of the hidden tests that pass."""
    passed = [passes for passes, _ in _outcomes(scenario["id"], tuple(scenario["files"]), scratch)]
    return sum(passed) / len(passed)


def fixed(scenario, result, scratch):
    """1 if all of them pass, otherwise 0."""
    return float(hidden_tests(scenario, result, scratch) == 1)


def tests_broken(scenario, result, scratch):
    """Share of those that passed with the bug and fail after the rollout; 0 if none did pass."""
    outcomes = _outcomes(scenario["id"], tuple(scenario["files"]), scratch)
    guards = [passes for passes, passed_before in outcomes if passed_before]
    return 1 - sum(guards) / len(guards) if guards else 0.0


@lru_cache(maxsize=1)
def _outcomes(name, files, scratch):
    """For each hidden test, whether it passes, and whether it did with the bug. Raises LookupError if there are no tests
    of this scenario, and RuntimeError if they could not be started: the rollout is unscored then."""
    tests = _tests(name)
    calls = [[module, function, given] for module, function, given, _, _ in tests]
    results = _run({"modules": _sources(files, Path(scratch) / REPOSITORY), "calls": calls})
    return [
        (_equal(results.get(str(number)), wanted), passed_before)
        for number, (_, _, _, wanted, passed_before) in enumerate(tests)
    ]


def _tests(name):
    """Hidden tests of a scenario: [module, function, arguments, result, whether it passes in spite of the bug]."""
    with open(HERE / "scenarios" / "hidden.jsonl", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row["id"] == name and row["tests"]:
                return row["tests"]
    raise LookupError(f"scenarios/hidden.jsonl has no tests for the scenario {name}")


def _sources(files, folder):
    """Text of each module of the scenario, as the agent left it. Other files of the folder are not used, so that nothing
    that was added there has an effect; a module that is no readable file, or a link, is left out, and its tests fail."""
    sources = {}
    if folder.resolve() != folder.parent.resolve() / folder.name:
        return sources
    for name in files:
        if name.endswith(".py") and name != TESTS:
            try:
                descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                with open(descriptor, encoding="utf-8") as file:
                    text = file.read(MOST_SOURCE + 1)
            except (OSError, ValueError):
                continue
            if len(text) <= MOST_SOURCE:
                sources[name.removesuffix(".py")] = text
    return sources


def _run(job):
    """Results of the calls as text, by number; a call without one failed, or came after one that never ended."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", str(HERE / "tested.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", env={}, start_new_session=True,
    )  # fmt: skip
    try:
        with contextlib.suppress(BrokenPipeError):  # it ended before: it is not ready then
            with process.stdin as entrance:
                entrance.write(json.dumps(job).encode())
        output = _read(process.stdout, START_S, b"\n")
        if not output.startswith(READY):
            raise RuntimeError("the hidden tests could not be started")
        lines = (output + _read(process.stdout, TESTS_S)).removeprefix(READY).splitlines()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    found = {}
    for line in lines:
        number, _, text = line.decode(errors="replace").partition(" ")
        found.setdefault(number, text)  # the first answer counts
    return found


def _read(pipe, most_s, until=None):
    """What comes from the pipe until its end, the time limit, the size limit, or a text."""
    data, deadline = b"", time.monotonic() + most_s
    while len(data) <= MOST_OUTPUT and (until is None or until not in data):
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([pipe], [], [], left_s)[0]:
            break
        part = os.read(pipe.fileno(), 65536)
        if not part:
            break
        data += part
    return data


def _equal(found, wanted):
    """Whether a result, as the process under test wrote it, is the right one."""
    try:
        return found is not None and literal_eval(found) == literal_eval(wanted)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
