"""Writes scenarios, hidden tests and demonstrations: `python scenarios/make_data.py`, the same files every time.

It is in this folder because an agent in a sandbox does not see it: from here, the correct files could be read.

Level 1 is one function of one line. Level 2 is a module of several functions, level 3 a repository of two or three modules
whose tests call the last of them while the bug is in another, level 4 has two bugs in two modules. The demonstrations are
of level 1; a third of the edits are wrong.
"""

import asyncio
import json
import random
import sys
import tempfile
from ast import literal_eval
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb, format_exception_only
from types import ModuleType, SimpleNamespace

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE / "repositories")]

from agent import METRICS, SYSTEM, TESTS, TOOLS, brief, describe, use, write  # noqa: E402
from arguments import ARGUMENTS  # noqa: E402
from bugs import bugs  # noqa: E402
from functions import draw  # noqa: E402

SEED = 21
TRAIN, VALIDATION, DEMONSTRATIONS = 192, 96, 160
"""Numbers of level 1."""
HARDER = {"train": 48, "validation": 24}
"""Numbers of each of the other levels."""
HELD_OUT = ("league", "schedule")
"""Repositories of the validation from level 2 on; those of the training are the others."""
MODULES = {
    "shop": ("prices", "cart", "receipt"), "words": ("cleaning", "counting", "report"), "grid": ("cells", "walks"),
    "schedule": ("times", "meetings"), "ledger": ("entries", "limits", "summary"), "league": ("matches", "table"),
}  # fmt: skip
"""Modules of each repository; each imports only from those before it."""
TURNS = {1: 2, 2: 6, 3: 10, 4: 14}
FAILING, PASSING, TRIES = 6, 2, 30
"""Hidden tests that the bug makes fail, and that pass in spite of it, at most; arguments tried for each function."""
RARE, RARELY = "missing return", 0.3
"""Kind of bug that every function could have, and how often it is kept as a choice."""
VISIBLE = 3
"""Visible tests that pass in spite of the bug, from level 2 on."""
SLIPS = 1 / 3


def main():
    luck = random.Random(SEED)
    hidden = []
    easy = distinct(lambda: small(luck), TRAIN + VALIDATION + DEMONSTRATIONS)
    save("scenarios/train.jsonl", named("1-t", easy[:TRAIN], hidden))
    save("scenarios/validation.jsonl", named("1-v", easy[TRAIN : TRAIN + VALIDATION], hidden))
    shown = easy[TRAIN + VALIDATION :]
    save("demonstrations/level-1.jsonl", [demonstrate(luck, one) for one in shown])
    for level in (2, 3, 4):
        for split, count in HARDER.items():
            names = [name for name in MODULES if (name in HELD_OUT) == (split == "validation")]
            rows = distinct(lambda names=names, level=level: repository(luck, luck.choice(names), level), count)
            file = f"level-{level}.jsonl" if split == "train" else f"level-{level}-validation.jsonl"
            save(f"scenarios/{file}", named(f"{level}-{split[0]}", rows, hidden))
    save("scenarios/hidden.jsonl", hidden)


def distinct(make, count):
    """That many scenarios; at level 1 no two with the same correct function, from level 2 on no two with the same bug."""
    found = {}
    while len(found) < count:
        one = make()
        if one is not None:
            found.setdefault(one["key"], one)
    return list(found.values())


def named(prefix, rows, hidden):
    """Scenarios with ids; their hidden tests go to `hidden`."""
    scenarios = []
    for number, row in enumerate(rows):
        name = f"{prefix}{number:03}"
        hidden.append({"id": name, "tests": row["hidden"]})
        scenarios.append({"id": name, **with_failure(row["scenario"])})
    return scenarios


def small(luck):
    """A function of level 1 with a bug in its last line; None if too few arguments show it."""
    drawn = draw(luck)
    kind, wrong = one_of_a_kind(luck, [one for one in bugs(drawn["source"]) if one[1].count("\n") == 3])
    cases = [("lib", drawn["name"], arguments) for arguments in drawn["arguments"]]
    luck.shuffle(cases)
    found = tests_of(luck, {"lib": drawn["source"]}, {"lib": wrong}, cases, lambda module: True)
    if found is None:
        return None
    visible, hidden = found
    scenario = scenario_of(1, [kind], {"lib": wrong}, visible[:1])
    row = {"key": drawn["source"], "right": {"lib": drawn["source"]}, "hidden": hidden}
    return {**row, "scenario": {**scenario, "show": "lib.py"}}


def repository(luck, name, level):
    """A repository of level 2 to 4 with one bug, or two at level 4; None if too few arguments show one of them."""
    modules = MODULES[name][:1] if level == 2 else MODULES[name]
    right = {module: (HERE / "repositories" / name / f"{module}.py").read_text() for module in modules}
    wrong, kinds = dict(right), []
    chosen = luck.sample(modules, 2) if level == 4 else [luck.choice(modules[:-1] or modules)]
    for module in chosen:
        kind, wrong[module] = one_of_a_kind(luck, bugs(right[module]))
        kinds.append(kind)
    cases = [
        (*named_function.split("."), make(luck))
        for named_function, make in ARGUMENTS.items()
        if named_function.split(".")[0] in modules
        for _ in range(TRIES)
    ]
    luck.shuffle(cases)
    if level == 4 and not all(any_fails(right, {**right, module: wrong[module]}, cases) for module in chosen):
        return None
    outer = modules[-1:] if level > 2 else modules
    found = tests_of(luck, right, wrong, cases, lambda module: module in outer)
    if found is None:
        return None
    visible, hidden = found
    row = {"key": json.dumps(wrong), "right": right, "hidden": hidden}
    return {**row, "scenario": scenario_of(level, kinds, wrong, visible)}


def one_of_a_kind(luck, found):
    """A random bug of a random kind, so that common kinds do not prevail."""
    kinds = sorted({kind for kind, _ in found})
    if len(kinds) > 1 and RARE in kinds and luck.random() > RARELY:
        kinds.remove(RARE)
    kind = luck.choice(kinds)
    return luck.choice([one for one in found if one[0] == kind])


def any_fails(right, wrong, cases):
    wanted, found = results(right, cases), results(wrong, cases)
    return any(not same(one, other) for one, other in zip(wanted, found, strict=True) if not one.startswith("raises"))


def tests_of(luck, right, wrong, cases, shows):
    """(visible, hidden) tests. A visible test is (module, function, arguments, result) and the first one fails; a hidden
    one is [module, function, arguments, result, whether it passes in spite of the bug], with the last three as Python
    literals. Visible ones are not among the hidden, unless only one test fails. None if no visible test can fail."""
    tests = {}
    for case, wanted, found in zip(cases, results(right, cases), results(wrong, cases), strict=True):
        if not wanted.startswith("raises"):
            tests.setdefault((case[0], case[1], repr(case[2])), (case, wanted, same(wanted, found)))
    failing = [(case, wanted) for case, wanted, passes in tests.values() if not passes]
    passing = [(case, wanted) for case, wanted, passes in tests.values() if passes]
    first = next((one for one in failing if shows(one[0][0])), None)
    if first is None:
        return None
    visible = [first, *[one for one in passing if shows(one[0][0])][:VISIBLE]]
    failing = [one for one in failing if one is not first] or [first]
    passing = [one for one in passing if one not in visible][: min(PASSING, len(failing))]
    chosen = [*((one, False) for one in failing[:FAILING]), *((one, True) for one in passing)]
    luck.shuffle(chosen)
    hidden = [[module, name, repr(given), wanted, passes] for ((module, name, given), wanted), passes in chosen]
    return [(*case, wanted) for case, wanted in visible], hidden


def same(wanted, found):
    return not found.startswith("raises") and literal_eval(wanted) == literal_eval(found)


def results(sources, cases):
    """Result of each case as a Python literal, or "raises" and the exception."""
    try:
        with imported(sources) as modules:
            return [result(getattr(modules[module], name), arguments) for module, name, arguments in cases]
    except Exception as error:  # a bug that shows at import
        return [f"raises {type(error).__name__}"] * len(cases)


@contextmanager
def imported(sources):
    """The modules of these texts; they can import those before them."""
    modules = {}
    try:
        for name, source in sources.items():
            modules[name] = sys.modules[name] = ModuleType(name)
            exec(compile(source, f"{name}.py", "exec"), vars(modules[name]))
        yield modules
    finally:
        for name in modules:
            del sys.modules[name]


def result(function, arguments):
    try:
        return repr(function(*json.loads(json.dumps(arguments))))
    except Exception as error:
        return f"raises {type(error).__name__}"


def scenario_of(level, kinds, wrong, visible):
    files = {f"{module}.py": source for module, source in wrong.items()}
    files[TESTS] = test_file(visible)
    files["README.md"] = f"# {list(wrong)[-1]}\n\nThe tests run with `python {TESTS}`.\n"
    return {"title": f"Level {level}: {', '.join(kinds)}", "level": level, "tags": [f"level {level}", *kinds],
            "turns": TURNS[level], "files": files}  # fmt: skip


def test_file(visible):
    """Imports, and an assertion for each test, the failing one first."""
    used = {}
    for module, name, _, _ in visible:
        used.setdefault(module, set()).add(name)
    imports = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(used.items())]
    calls = [(f"{name}({', '.join(map(repr, given))})", wanted) for _, name, given, wanted in visible]
    return "\n".join([*imports, "", *(f"assert {call} == {wanted}, {call}" for call, wanted in calls), ""])


def with_failure(scenario):
    """The scenario with the last failure of its visible tests, as `visible_tests` of the agent puts it."""
    files = scenario["files"]
    sources = {name.removesuffix(".py"): text for name, text in files.items() if name.endswith(".py") and name != TESTS}
    try:
        with imported(sources):
            exec(compile(files[TESTS], TESTS, "exec"), {})
    except Exception as error:
        places = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == TESTS]
        lines = [files[TESTS].splitlines()[place - 1] for place in places]
        return {**scenario, "fails": brief([*lines, format_exception_only(error)[-1].strip()])}
    raise ValueError(f"the visible tests pass: {files}")


def demonstrate(luck, one):
    """One or two edits of level 1; a third of them wrong. The tools of the agent answer them."""
    scenario, right = with_failure(one["scenario"]), one["right"]["lib"]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": describe(scenario)}]
    with tempfile.TemporaryDirectory() as scratch:
        folder, metrics = Path(scratch) / "repository", dict.fromkeys(METRICS, 0)
        write(folder, scenario["files"])
        for turn in range(scenario["turns"]):
            arguments = {"file": "lib.py", "line": 3, "text": right.splitlines()[2].strip()}
            if luck.random() < SLIPS:
                arguments = slip(luck, right, arguments)
            messages.append(call(turn, **arguments))
            said = asyncio.run(use(folder, SimpleNamespace(**messages[-1]["tool_calls"][0]["function"]), metrics))
            if metrics["visible_tests"] or turn + 1 == scenario["turns"]:
                break
            messages.append({"role": "tool", "tool_call_id": f"edit-{turn}", "content": said})
    return {"messages": messages, "tools": TOOLS}


def slip(luck, right, arguments):
    """What a hurried programmer does: puts another bug in, or edits another line."""
    if luck.random() < 0.2:
        return {**arguments, "line": luck.choice((2, 4))}
    _, wrong = one_of_a_kind(luck, [one for one in bugs(right) if one[1].count("\n") == 3])
    return {**arguments, "text": wrong.splitlines()[2].strip()}


def call(turn, **arguments):
    function = {"name": "edit", "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": f"edit-{turn}", "type": "function", "function": function}]}


def save(name, rows):
    file = HERE.parent / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
