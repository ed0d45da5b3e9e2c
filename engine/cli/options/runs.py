"""Options of the commands that read runs, and make runs of what comes from elsewhere."""

import argparse

from engine.cli.options.general import as_json, positive, trust, workspace


def _runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    as_json(parser)


def _repair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run folder")


def _remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run folder")
    parser.add_argument("--yes", action="store_true", help="without asking")


def _checkpoints(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run folder")
    wish = parser.add_mutually_exclusive_group()
    wish.add_argument("--pin", type=int, metavar="STEP", help="keep it whatever the rules say")
    wish.add_argument("--unpin", type=int, metavar="STEP", help="leave it to the rules again")
    wish.add_argument("--delete", type=int, metavar="STEP", help="clear it away now")
    parser.add_argument("--note", default="", help="why it is pinned")
    workspace(parser)
    as_json(parser)


def _trajectories(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run folder")
    parser.add_argument("--step", type=int, help="only this step")
    parser.add_argument("--split", choices=["train", "validation"], help="only this split")
    parser.add_argument("--unscored", action="store_true", help="only unscored ones")
    parser.add_argument("--search", default="", help="words that must occur")
    parser.add_argument(
        "--limit", type=positive, default=50, help="at most so many rows (default 50)"
    )
    as_json(parser)


def _scenarios(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run folder")
    parser.add_argument(
        "--sort",
        choices=["hardest", "improved", "forgotten", "spread"],
        default="hardest",
        help="what comes first (default hardest)",
    )
    parser.add_argument(
        "--split", choices=["train", "validation"], default="train", help="default train"
    )
    parser.add_argument("--search", default="", help="what the id must contain")
    parser.add_argument(
        "--limit", type=positive, default=50, help="at most so many rows (default 50)"
    )
    as_json(parser)


def _track(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run folder")
    parser.add_argument(
        "--to",
        action="append",
        default=[],
        metavar="TRACKER",
        help="only this one (wandb, mlflow, trackio, tensorboard, otel, langfuse), also where the "
        "project has it off; repeatable (default: those on)",
    )
    workspace(parser)
    trust(parser)
    as_json(parser)


def _import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument(
        "source", help="JSONL file of chat messages, or an .art folder, or that of one model in it"
    )
    parser.add_argument("--model", default="", help="which one, where the folder holds several")
    as_json(parser)


COMMANDS = {
    "runs": ("list the runs of a project", _runs),
    "repair": ("recover a damaged run up to the damage; the old files are kept", _repair),
    "remove": ("delete a run with its checkpoints", _remove),
    "checkpoints": ("what a run keeps and why; pin, unpin, delete", _checkpoints),
    "trajectories": ("list the trajectories of a run", _trajectories),
    "scenarios": ("what came of each scenario: solve rates, gain, curve", _scenarios),
    "track": ("tell trackers (W&B, MLflow …) what they have not been told of a run", _track),
    "import": ("make a run of attempts from elsewhere: an .art folder, or a JSONL file", _import),
}
"""Name: (what it does, its options)."""
