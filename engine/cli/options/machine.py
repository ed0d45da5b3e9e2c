"""Options of the commands about this machine."""

import argparse
from pathlib import Path

from engine.cli.options.general import Parser, as_json, natural, positive, trust, workspace


def _serve(parser: argparse.ArgumentParser) -> None:
    workspace(parser)


def _environments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", parser_class=Parser, dest="action"
    )
    for action, words in (
        ("list", "all environments and their state"),
        ("install", "install an environment; resumes after an interruption"),
        ("verify", "check every file of an environment and test it"),
        ("repair", "replace an environment if it is damaged"),
        ("remove", "delete an environment with its downloads"),
        ("use", "use this engine from the next start: built-in or engine-gpu"),
        ("rollback", "use the previous engine from the next start"),
    ):
        one = actions.add_parser(action, help=words, description=f"{words[0].upper()}{words[1:]}.")
        if action not in ("list", "rollback"):
            one.add_argument(
                "name", help="environment (see `list`), or a project (environment of its agent)"
            )
        if action == "install":
            one.add_argument(
                "--use", action="store_true", help="after installing, select this engine"
            )
        if action in ("install", "repair"):
            trust(one)
        as_json(one)


def _bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--against",
        choices=["trl"],
        help="also measure TRL's GRPOTrainer, in a separate environment; steps alternate",
    )
    parser.add_argument(
        "--shape",
        action="append",
        metavar="P,C,G,Q",
        help="prompt tokens, completion tokens, rollouts per group, groups; repeatable "
        "(default 256,64,8,2 and 1024,64,8,1)",
    )
    parser.add_argument(
        "--model", default="smollm2-135m-instruct", help="name, id or folder of a model"
    )
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16"], default="auto")
    parser.add_argument(
        "--repeats", type=positive, default=5, help="measured steps per shape (default 5)"
    )
    parser.add_argument(
        "--no-growth", action="store_true", help="skip the scaling and multi-turn benchmarks"
    )
    _gpu(parser)
    as_json(parser)


def _gpu(parser: argparse.ArgumentParser) -> None:
    gpu = parser.add_argument_group("the GPU check")
    gpu.add_argument(
        "--gpu",
        action="store_true",
        help="check every installed backend on this machine's GPU and write a report; "
        "of the options above, only --model and --json apply",
    )
    gpu.add_argument("--quick", action="store_true", help="use small sizes; takes a few minutes")
    gpu.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only checks with this name or prefix (hello, 2048-torch, trl); repeatable",
    )
    gpu.add_argument(
        "--out",
        default="gpu-report",
        metavar="FOLDER",
        help="folder of gpu-report.md and gpu-report.json (default: ./gpu-report)",
    )
    gpu.add_argument("--processor", action="store_true", help="run the same checks on the CPU")


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "project", nargs="?", type=Path, help="project folder, whose model is checked too"
    )
    as_json(parser)


TITLE = "This machine"


def _mcp_server(parser: argparse.ArgumentParser) -> None:
    workspace(parser)
    parser.add_argument(
        "--runs", type=natural, default=0, help="runs that may be started (default: none)"
    )
    parser.add_argument(
        "--steps", type=natural, default=0, help="training steps of all these runs together"
    )
    parser.add_argument(
        "--usd", type=float, default=0.0, help="cost of their judges together, in US dollars"
    )
    parser.add_argument(
        "--edit", action="store_true", help="settings and rubrics of projects may be changed"
    )


COMMANDS = {
    "serve": ("run an engine for a workspace (started automatically otherwise)", _serve),
    "environments": (
        "list, install, repair or remove Python environments; choose the engine",
        _environments,
    ),
    "bench": ("benchmark training and sampling, optionally against TRL", _bench),
    "mcp-server": (
        "let a coding agent read projects and runs over MCP, and start runs within limits",
        _mcp_server,
    ),
    "doctor": ("check this machine: Python, disk, memory, GPU; and a project's model", _doctor),
}
"""Commands of this group: name → (help, function that adds its options)."""
