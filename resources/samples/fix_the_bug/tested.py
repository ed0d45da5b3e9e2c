"""Process that runs the code which a model wrote: rewards.py starts it with `python -I -S`, so that no file of the
repository is loaded by itself.

Reads {"modules": {name: source}, "calls": [[module, function, arguments]]} from its standard input, gives up what it does
not need, prints "ready", and then for each call that returns plain values a line "NUMBER LITERAL". The modules can import
each other and the modules of PRELOADED. They cannot open files or sockets, start processes, or send signals: what a test
expects is in files, and the process that knows it is the parent.
"""

import bisect
import calendar
import collections
import contextlib
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import heapq
import importlib.abc
import importlib.util
import io
import itertools
import json
import math
import operator
import os
import random
import re
import resource
import statistics
import string
import sys
import textwrap
import typing
from ast import literal_eval

PRELOADED = (
    bisect, calendar, collections, contextlib, copy, dataclasses, datetime, decimal, enum, fractions, functools, heapq,
    itertools, json, math, operator, random, re, statistics, string, textwrap, typing,
)  # fmt: skip
"""Modules of the standard library that the code may use; others cannot be opened."""
MEMORY_BYTES, CPU_S = 2**30, 5
REFUSED = (
    "open", "os.", "shutil.", "subprocess.", "socket.", "ctypes.", "signal.", "resource.", "fcntl.", "mmap.", "gc.",
    "pty.", "tempfile.", "glob.", "pathlib.", "sqlite3.", "syslog.", "urllib.", "webbrowser.", "cpython.",
)  # fmt: skip
"""Beginnings of the audit events that raise PermissionError."""


class Nowhere(io.TextIOBase):
    """Standard output of the code: dropped."""

    def write(self, text):
        return len(text)


class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that are imported from their text."""

    def __init__(self, sources):
        self.sources = sources

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in self.sources else None

    def exec_module(self, module):
        exec(compile(self.sources[module.__name__], f"{module.__name__}.py", "exec"), vars(module))


def give_up_rights():
    """No new descriptor (so no file, socket or pipe), no new process, bounded memory and time."""
    used_s = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    for kind, most in (
        (resource.RLIMIT_CPU, int(used_s) + CPU_S),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    sys.addaudithook(refuse)


def refuse(event, _):
    if event.startswith(REFUSED):
        raise PermissionError(f"{event} is not allowed in hidden tests")


def literal(value):
    """The value as a Python literal. Raises TypeError unless it consists of plain built-in values."""
    if type(value) in (list, tuple, set):
        for one in value:
            literal(one)
    elif type(value) is dict:
        for pair in value.items():
            literal(pair)
    elif value is not None and type(value) not in (bool, int, float, str):
        raise TypeError(f"a result is a {type(value).__name__}")
    return repr(value)


def main():
    job = json.load(sys.stdin)
    sys.meta_path.insert(0, Sources(job["modules"]))
    sys.stdout = sys.stderr = Nowhere()
    give_up_rights()
    os.write(1, b"ready\n")
    for number, (module, function, given) in enumerate(job["calls"]):
        try:
            found = getattr(importlib.import_module(module), function)(*literal_eval(given))
            os.write(1, f"{number} {literal(found)}\n".encode())
        except BaseException:  # sys.exit included: the call has no result
            continue
    os._exit(0)


if __name__ == "__main__":
    main()
