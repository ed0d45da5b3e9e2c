"""`python -m tests.fuzz NAME --seconds 600`: run a fuzz target, or `all` of them in turn."""

import argparse
import sys
from pathlib import Path

from tests.fuzz.runner import names, report, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("name", choices=[*names(), "all"])
    parser.add_argument("--seconds", type=float, default=600.0, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for inputs that crashed")
    parser.add_argument("--slowest", action="store_true", help="print the slowest input")
    arguments = parser.parse_args()
    failed = False
    for name in names() if arguments.name == "all" else [arguments.name]:
        result = run(name, arguments.seconds, arguments.seed)
        report(result, arguments.keep)
        if arguments.slowest:
            print(f"{result.slowest!r:.2000}")
        failed |= bool(result.crashed or result.hangs or result.outside)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
