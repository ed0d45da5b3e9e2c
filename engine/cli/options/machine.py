"""Options of the commands about this machine."""

import argparse

from engine.cli.options.general import Parser, as_json, positive, trust, workspace


def _serve(parser: argparse.ArgumentParser) -> None:
    workspace(parser)


def _environments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", parser_class=Parser, dest="action"
    )
    for action, words in (
        ("list", "what there is, and what of it is installed"),
        ("install", "install one; an interrupted installation resumes"),
        ("verify", "compare every file with what was installed, and try it"),
        ("repair", "where something is damaged, make a new one and use that"),
        ("remove", "take one away, with what was brought for it"),
        ("use", "start this engine from now on: built-in, or engine-gpu"),
        ("rollback", "start the engine from now on that was in use before"),
    ):
        one = actions.add_parser(action, help=words, description=words.capitalize() + ".")
        if action not in ("list", "rollback"):
            one.add_argument(
                "name",
                help="name of an environment (see `list`), or a project: its agent.requirements",
            )
        if action == "install":
            one.add_argument("--use", action="store_true", help="then start this engine")
        if action in ("install", "repair"):
            trust(one)
        as_json(one)


def _bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--against",
        choices=["trl"],
        help="run TRL's GRPOTrainer in turn with ours, in an environment of its own",
    )
    parser.add_argument(
        "--shape",
        action="append",
        metavar="P,C,G,Q",
        help="prompt tokens, completion tokens, rollouts per group, groups; repeatable "
        "(default 256,64,8,2 and 1024,64,8,1)",
    )
    parser.add_argument("--model", default="smollm2-135m-instruct", help="name, id or folder")
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16"], default="auto")
    parser.add_argument(
        "--repeats", type=positive, default=5, help="measured steps each (default 5)"
    )
    parser.add_argument(
        "--no-growth", action="store_true", help="leave out how the cost grows, and multi-turn"
    )
    _gpu(parser)
    as_json(parser)


def _gpu(parser: argparse.ArgumentParser) -> None:
    gpu = parser.add_argument_group("the GPU check")
    gpu.add_argument(
        "--gpu",
        action="store_true",
        help="try every backend that is installed on this machine's card, and write a page about "
        "it; of the options above it takes --model and --json",
    )
    gpu.add_argument("--quick", action="store_true", help="small sizes, a few minutes")
    gpu.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="this check, or those whose names begin so (hello, 2048-torch, trl); repeatable",
    )
    gpu.add_argument(
        "--out",
        default="gpu-report",
        metavar="FOLDER",
        help="for gpu-report.md and gpu-report.json (default: gpu-report here)",
    )
    gpu.add_argument(
        "--processor", action="store_true", help="without a card: the same checks on the processor"
    )


TITLE = "This machine"
COMMANDS = {
    "serve": ("run an engine for a workspace (started automatically otherwise)", _serve),
    "environments": (
        "list, install, repair or remove Python environments; choose the engine",
        _environments,
    ),
    "bench": ("benchmark training and sampling, optionally beside TRL", _bench),
    "doctor": ("check this machine: Python, disk, memory, GPU", as_json),
}
"""Commands of this group: name → (help, function that adds its options)."""
