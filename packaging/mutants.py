"""`bootstrap.py mutants`: the share of planted faults that the unit tests of pure modules find, by
mutmut. `[tool.mutmut]` in pyproject.toml says which modules and which tests. Standard library
only.
"""

import argparse
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable

from base import PYTHON, ROOT, Failed, ensure_environment, ensure_packages, say

NAME = "mutants"
FLOOR = 0.88
"""Least share of all mutants that has to be found."""
FOUND = {"killed", "timeout", "segfault", "suspicious", "caught by type check"}
"""Results of mutmut for a mutant whose tests did not pass."""
MISSED = {"survived", "no tests"}


def add_mutants(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    mutants = commands.add_parser(NAME, help="measure by mutation how much the unit tests find")
    mutants.add_argument(
        "modules", nargs="*", metavar="MODULE", help="such as engine.reward.labels"
    )
    mutants.set_defaults(command=command_mutants)


def command_mutants(arguments: argparse.Namespace) -> int:
    """Print a line per module, worst first, and every survivor; exit 1 below FLOOR."""
    ensure_environment()
    ensure_packages(["engine-cpu", "studio", "test", NAME])
    shutil.rmtree(ROOT / "mutants", ignore_errors=True)  # what is there is not tested anew
    mutmut = [str(PYTHON), "-m", "mutmut"]
    chosen = [f"{module}.*" for module in arguments.modules]
    if subprocess.call([*mutmut, "run", *chosen], cwd=ROOT):
        raise Failed("mutmut could not run. Do the unit tests pass without it?")
    results = subprocess.run(
        [*mutmut, "results", "--all", "true"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    found, missed, survivors = count(results.stdout.splitlines(), arguments.modules)
    total = sum(found.values()) + sum(missed.values())
    if not total:
        raise Failed(f"No mutant was made. Is the module listed in [tool.mutmut]? {chosen}")
    for survivor in survivors:
        say(f"not found: {survivor}")
    for module in sorted(found | missed, key=lambda name: share(found[name], missed[name])):
        of = found[module] + missed[module]
        say(f"{share(found[module], missed[module]):6.1%} of {of:4} {module}")
    score = sum(found.values()) / total
    say(f"{score:6.1%} of {total:4} mutants found")
    if score < FLOOR:
        raise Failed(f"Fewer than {FLOOR:.0%}. `mutmut show NAME` prints a mutant as a diff.")
    return 0


def share(found: int, missed: int) -> float:
    return found / (found + missed)


def count(lines: Iterable[str], modules: list[str]) -> tuple[Counter[str], Counter[str], list[str]]:
    """Found and missed mutants by module, and the names of the missed ones.

    A line of mutmut's is `    engine.reward.blend.x_blend__mutmut_3: killed`. Mutants of other
    modules than the chosen ones, and mutants that were not tested, are left out.
    """
    found: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    survivors = []
    for line in lines:
        name, _, status = line.strip().rpartition(": ")
        module = module_of(name)
        if modules and module not in modules:
            continue
        if status in FOUND:
            found[module] += 1
        elif status in MISSED:
            missed[module] += 1
            survivors.append(name)
    return found, missed, survivors


def module_of(mutant: str) -> str:
    """`engine.reward.blend` of `engine.reward.blend.x_blend__mutmut_3` or `….xǁClassǁmethod__…`."""
    return mutant.rpartition(".")[0]
