"""Options of the commands that judge and label."""

import argparse

from engine.cli.options.general import Parser, as_json, money, positive, trust, workspace


def _judge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="run folder, or a JSONL file of chat messages")
    parser.add_argument("--rubric", help="file; the run's own when left out")
    parser.add_argument(
        "--judge",
        action="append",
        default=[],
        metavar="MODEL",
        help="as litellm names it (openai/gpt-5.4); repeatable; the run's own when left out",
    )
    parser.add_argument("--base-url", help="of an OpenAI-compatible server, for openai/… judges")
    money(parser)
    parser.add_argument("--passes", type=positive, help="most looks at a group (default 3)")
    parser.add_argument("--step", type=int, help="only this step")
    parser.add_argument("--split", choices=["train", "validation"], help="only this split")
    trust(parser)
    as_json(parser)


def _label(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", parser_class=Parser, dest="action"
    )
    for action, words in (
        ("export", "write the labels that hold as JSON Lines"),
        ("import", "give the labels of a JSON Lines file; one that is known is not given twice"),
        ("undo", "take back the newest"),
        ("redo", "say again what was undone last"),
        ("done", "end the review that the run waits for"),
    ):
        one = actions.add_parser(action, help=words)
        one.add_argument("run", help="run folder")
        if action == "import":
            one.add_argument("file", help="labels, one JSON object a line")
        if action == "export":
            one.add_argument("--all", action="store_true", help="also those that were undone")
        workspace(one)
        as_json(one)


def _agreement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run folder")
    as_json(parser)


COMMANDS = {
    "judge": ("compare the attempts of a run, or of a JSONL file, by a rubric", _judge),
    "label": ("your labels of a run: export, import, undo, redo, or end a review", _label),
    "agreement": ("how far the judges of a run go along with you, and with themselves", _agreement),
}
"""Name: (what it does, its options)."""
