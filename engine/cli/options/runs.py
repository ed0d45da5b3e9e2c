"""Options of the commands about runs."""

import argparse

from engine.cli.options.general import as_json, positive, trust, workspace

SORTS = ("started", "name", "state", "kind", "model", "steps", "best", "duration", "cost")
"""Values of `RunSort`, which is not imported because it loads pydantic."""


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="name, id or folder of a run")


def _runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument("--tag", help="only runs with this tag")
    parser.add_argument(
        "--search", default="", help="only runs with these words in name, tags, note, settings"
    )
    parser.add_argument("--archived", action="store_true", help="list archived runs instead")
    parser.add_argument(
        "--sort",
        choices=SORTS,
        default="started",
        help="sort order of the rows (default started); pinned runs come first",
    )
    parser.add_argument(
        "--limit", type=positive, default=1000, help="maximum number of rows (default 1000)"
    )
    as_json(parser)


def _note(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    parser.add_argument("--tag", action="append", default=[], help="add a tag; repeatable")
    parser.add_argument("--untag", action="append", default=[], help="remove a tag; repeatable")
    parser.add_argument("--text", dest="note", help="replace the note; an empty text removes it")
    pin = parser.add_mutually_exclusive_group()
    pin.add_argument("--pin", dest="pinned", action="store_true", default=None, help="list first")
    pin.add_argument("--unpin", dest="pinned", action="store_false", help="no longer list first")
    shelf = parser.add_mutually_exclusive_group()
    shelf.add_argument(
        "--archive", dest="archived", action="store_true", default=None, help="hide from lists"
    )
    shelf.add_argument("--unarchive", dest="archived", action="store_false", help="list again")
    as_json(parser)


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="+", help="name, id or folder of a run; the reference first")
    parser.add_argument(
        "--last", action="store_true", help="compare the last validations instead of the best ones"
    )
    parser.add_argument(
        "--scenarios",
        type=positive,
        default=20,
        metavar="N",
        help="number of scenarios to list, those that differ most first (default 20)",
    )
    as_json(parser)


def _repair(parser: argparse.ArgumentParser) -> None:
    _run(parser)


def _remove(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _checkpoints(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    wish = parser.add_mutually_exclusive_group()
    wish.add_argument("--pin", type=int, metavar="STEP", help="keep this checkpoint permanently")
    wish.add_argument("--unpin", type=int, metavar="STEP", help="allow automatic deletion again")
    wish.add_argument("--delete", type=int, metavar="STEP", help="delete this checkpoint now")
    parser.add_argument("--note", default="", help="note to store with the pin")
    workspace(parser)
    as_json(parser)


def _trajectories(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    parser.add_argument("--step", type=int, help="only this step")
    parser.add_argument("--split", choices=["train", "validation"], help="only this split")
    parser.add_argument("--unscored", action="store_true", help="only unscored trajectories")
    parser.add_argument(
        "--filter",
        default="",
        metavar="EXPRESSION",
        help="only matches, such as 'reward < 0.2 and turns > 3 and tool:search and "
        'text:"refund"\'; the help page Find trajectories lists all fields',
    )
    parser.add_argument(
        "--jsonl",
        metavar="FILE",
        help="write all matches to FILE (- for standard output), one JSON object per line; "
        "--limit does not apply",
    )
    parser.add_argument(
        "--tokens", action="store_true", help="with --jsonl: include token ids and log-probs"
    )
    parser.add_argument(
        "--inspect",
        metavar="FOLDER",
        help="write the whole evaluation RUN as logs of Inspect into FOLDER, one per model; "
        "filters do not apply",
    )
    parser.add_argument(
        "--limit", type=positive, default=50, help="maximum number of rows (default 50)"
    )
    as_json(parser)


def _show(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    parser.add_argument("trajectory", help="id of the trajectory, or its last characters")
    as_json(parser)


def _scenarios(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    parser.add_argument(
        "--sort",
        choices=["hardest", "improved", "forgotten", "spread"],
        default="hardest",
        help="order of the rows (default hardest)",
    )
    parser.add_argument(
        "--split", choices=["train", "validation"], default="train", help="default train"
    )
    parser.add_argument("--search", default="", help="text that the id must contain")
    parser.add_argument(
        "--limit", type=positive, default=50, help="maximum number of rows (default 50)"
    )
    as_json(parser)


def _track(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    parser.add_argument(
        "--to",
        action="append",
        default=[],
        metavar="TRACKER",
        help="tracker (wandb, mlflow, trackio, tensorboard, otel, langfuse), even if "
        "disabled in the project; repeatable (default: all enabled ones)",
    )
    workspace(parser)
    trust(parser)
    as_json(parser)


def _import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument(
        "source",
        help="JSONL file of chat messages; traces (OpenTelemetry, Phoenix, Langfuse) in JSON or "
        "JSONL; .art folder, or the folder of one model in it",
    )
    parser.add_argument("--model", default="", help="model to import, if the folder holds several")
    parser.add_argument(
        "--as",
        dest="form",
        choices=("trajectories", "scenarios"),
        default="trajectories",
        help="import a run of trajectories (default), or append the messages up to the first "
        "answer to the project's scenarios",
    )
    parser.add_argument(
        "--split",
        choices=("train", "validation"),
        help="scenario file to extend, with --as scenarios (default train)",
    )
    parser.add_argument(
        "--mask",
        action="store_true",
        help="replace e-mail addresses, telephone, card and account numbers, IP addresses and keys "
        "with placeholders",
    )
    as_json(parser)


TITLE = "Runs"
COMMANDS = {
    "runs": ("list the runs of a project", _runs),
    "compare": ("compare runs: validations, settings, scenarios", _compare),
    "note": ("tag, annotate, pin or archive a run", _note),
    "trajectories": ("find, list and export the trajectories of a run", _trajectories),
    "show": ("show one trajectory: reward, reason, messages, verdicts", _show),
    "scenarios": ("reward statistics per scenario over time", _scenarios),
    "checkpoints": ("list, pin, unpin or delete the checkpoints of a run", _checkpoints),
    "track": ("send a run to experiment trackers (W&B, MLflow …)", _track),
    "import": ("import trajectories or scenarios from JSONL, traces, Parquet or .art", _import),
    "repair": ("restore a run as far as its data is readable; damaged files are kept", _repair),
    "remove": ("delete a run with its checkpoints", _remove),
}
"""Commands of this group: name → (help, function that adds its options)."""
