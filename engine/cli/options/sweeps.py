"""Options of the commands about sweeps."""

import argparse

from engine.cli.options.general import as_json, positive, settings, trust, workspace


def _sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="KEY=VALUES",
        help="setting to sweep, added to [sweep.parameters]: train.lr=[1e-5,1e-4], or "
        "'train.lr={low=1e-5,high=1e-3,log=true}'; repeatable",
    )
    parser.add_argument("--method", choices=["grid", "random", "tpe"], help="sweep.method")
    parser.add_argument("--trials", type=positive, help="combinations to try (sweep.trials)")
    parser.add_argument("--seeds", type=positive, help="runs per combination (sweep.seeds)")
    parser.add_argument("--prune", choices=["none", "halving"], help="sweep.prune")
    parser.add_argument("--steps", type=positive, help="train.steps")
    parser.add_argument("--seed", type=int, help="seed of the first run (train.seed)")
    parser.add_argument(
        "--budget-hours", type=float, metavar="HOURS", help="time limit (sweep.budget_hours)"
    )
    parser.add_argument(
        "--budget", type=float, metavar="USD", help="spending limit (sweep.budget_usd)"
    )
    settings(parser, "train.groups=4")
    parser.add_argument(
        "--resume",
        metavar="SWEEP",
        help="resume this sweep (id or name), with new budgets if given",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check the settings and print the plan only"
    )
    parser.add_argument("--host", default="", help=argparse.SUPPRESS)
    workspace(parser)
    trust(parser)
    as_json(parser)


def _sweeps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument("sweep", nargs="?", default="", help="show the table of this sweep")
    as_json(parser)


TITLE = "Sweeps"
COMMANDS = {
    "sweep": ("try several values of settings in many runs, and compare them", _sweep),
    "sweeps": ("list the sweeps of a project, or show one", _sweeps),
}
"""Commands of this group: name → (help, function that adds its options)."""
