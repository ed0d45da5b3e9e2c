"""Options of the commands about judges and labels."""

import argparse

from engine.cli.options.general import Parser, as_json, money, positive, trust, workspace

REASONS = (
    "unscored", "judge_passes", "judge_models", "judge_and_rules", "spread", "near_tie", "advantage"
)  # fmt: skip
"""Names of `engine.protocol.requests.review.REASONS`, which would load pydantic here."""


def _judge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="run (name, id or folder), or a JSONL file of chat messages")
    parser.add_argument("--rubric", help="rubric file (default: the run's rubric)")
    parser.add_argument(
        "--judge",
        action="append",
        default=[],
        metavar="MODEL",
        help="model in LiteLLM syntax (openai/gpt-5.4); repeatable (default: the run's judges)",
    )
    parser.add_argument("--base-url", help="OpenAI-compatible server, for judges named openai/…")
    money(parser)
    parser.add_argument(
        "--passes", type=positive, help="maximum number of judge passes over a group (default 3)"
    )
    parser.add_argument("--step", type=int, help="only this step")
    parser.add_argument("--split", choices=["train", "validation"], help="only this split")
    trust(parser)
    as_json(parser)


def _label(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", parser_class=Parser, dest="action"
    )
    for action, words in (
        ("export", "write the current labels as JSON Lines"),
        ("import", "store the labels of a JSON Lines file; known labels are skipped"),
        ("undo", "undo the newest label"),
        ("redo", "redo the last undone label"),
        ("annotators", "list annotators of the run and how often they agree"),
        ("done", "end the review that the run waits for"),
    ):
        one = actions.add_parser(action, help=words)
        one.add_argument("run", help="name, id or folder of a run")
        if action == "import":
            one.add_argument("file", help="JSON Lines file of labels")
        if action == "export":
            one.add_argument("--all", action="store_true", help="include labels that were undone")
        workspace(one)
        as_json(one)
    queue = actions.add_parser(
        "queue", help="list the groups for which a label is most informative"
    )
    queue.add_argument("run", help="name, id or folder of a run")
    queue.add_argument("--limit", type=positive, default=20, help="number of groups (default 20)")
    queue.add_argument(
        "--reason",
        action="append",
        default=[],
        choices=REASONS,
        help="rank by this reason only; repeatable (default: all reasons)",
    )
    queue.add_argument("--split", choices=["train", "validation"], default="train")
    queue.add_argument(
        "--annotator",
        default="",
        metavar="NAME",
        help="list groups that only other annotators labelled, to measure agreement",
    )
    as_json(queue)


def _agreement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="name, id or folder of a run")
    as_json(parser)


TITLE = "Judging and labels"
COMMANDS = {
    "judge": ("score trajectories of a run or a JSONL file by a rubric", _judge),
    "label": ("list groups to label; export, import, undo or redo labels; end a review", _label),
    "agreement": ("agreement of the judges with your labels, and with themselves", _agreement),
}
"""Commands of this group: name → (help, function that adds its options)."""
