"""Options of the commands about models: chat, downloads, export, serving."""

import argparse

from engine.cli.options.general import Parser, as_json, positive, trust, workspace


def _chat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument("question", nargs="?", default="", help="none: lines are read from stdin")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        help="base, RUN@STEP, RUN@best, RUN, or as litellm names it; repeatable (default base)",
    )
    parser.add_argument("--scenario", default="", metavar="ID", help="run the agent at this one")
    parser.add_argument("--seed", type=int, default=0, help="the same for every model")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-tokens", type=positive, default=256)
    workspace(parser)
    trust(parser)
    as_json(parser)


def _models(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", parser_class=Parser, dest="action"
    )
    listing = actions.add_parser("list", help="models on this machine, and starters")
    as_json(listing)
    pull = actions.add_parser("pull", help="bring a model onto this machine")
    pull.add_argument("name", help="starter name, Hugging Face id or folder")
    path = actions.add_parser("path", help="print the folder of a model")
    path.add_argument("name")


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN[@STEP]",
        help="run (name, id or folder) and checkpoint: STEP, best or newest (default: newest)",
    )
    parser.add_argument("--format", choices=["adapter", "merged", "gguf"], required=True)
    parser.add_argument("--out", required=True, help="folder that is made; never overwritten")
    parser.add_argument(
        "--dtype",
        choices=["float32", "float16", "bfloat16", "q8_0"],
        help="precision (default: the base model's when merged, float16 as gguf)",
    )
    parser.add_argument(
        "--prompts",
        type=positive,
        default=32,
        help="stored trajectories to compare on (32, at most 100)",
    )
    parser.add_argument(
        "--shard-mb", type=positive, default=5000, help="largest file of weights (default 5000)"
    )
    parser.add_argument("--force", action="store_true", help="keep it even where it differs")
    parser.add_argument(
        "--push", default="", metavar="ORG/NAME", help="upload it to the Hugging Face hub, private"
    )
    parser.add_argument(
        "--token-stdin", action="store_true", help="read the hub's token from stdin, not HF_TOKEN"
    )
    workspace(parser)
    as_json(parser)


def _serve_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="folder of an export, merged or adapter")
    parser.add_argument("--port", type=int, default=8000, help="on loopback (default 8000)")
    parser.add_argument("--base", help="folder of the adapter's base model, where it has no name")
    parser.add_argument("--api-key", help="what callers must send as bearer token")
    parser.add_argument(
        "--dtype",
        choices=["auto", "float32", "bfloat16"],
        help="precision of the computation (default: the one in which the export was proven)",
    )
    parser.add_argument(
        "--context", type=positive, help="longest prompt plus completion, in tokens"
    )


TITLE = "Models and export"
COMMANDS = {
    "chat": ("ask several models the same question, side by side", _chat),
    "models": ("list, download or locate base models", _models),
    "export": ("export a checkpoint: adapter, merged or GGUF, with a parity report", _export),
    "serve-model": (
        "serve an exported folder as an OpenAI-compatible endpoint on loopback",
        _serve_model,
    ),
}
"""Commands of this group: name → (help, function that adds its options)."""
