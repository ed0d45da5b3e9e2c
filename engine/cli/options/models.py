"""Options of the commands about models: chat, downloads, export, serving."""

import argparse

from engine.cli.options.general import Parser, as_json, positive, trust, workspace


def _chat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument("question", nargs="?", default="", help="prompt (or lines on stdin)")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        help="base, RUN@STEP, RUN@best, RUN or a LiteLLM name; repeatable (default base)",
    )
    parser.add_argument("--scenario", default="", metavar="ID", help="id of a scenario to run")
    parser.add_argument("--seed", type=int, default=0, help="seed shared by all models")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-tokens", type=positive, default=256)
    workspace(parser)
    trust(parser)
    as_json(parser)


def _models(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", parser_class=Parser, dest="action"
    )
    listing = actions.add_parser(
        "list", help="models on this machine with their sizes, and starter models"
    )
    as_json(listing)
    search = actions.add_parser("search", help="search the Hugging Face hub")
    search.add_argument("words", nargs="+", metavar="WORDS")
    as_json(search)
    show = actions.add_parser("show", help="details of a model, and whether it fits this machine")
    show.add_argument("name", help="starter name, Hugging Face id or folder")
    show.add_argument("--project", default="", help="project folder whose settings are used")
    as_json(show)
    pull = actions.add_parser("pull", help="download a model; resumes an interrupted download")
    pull.add_argument("name", help="starter name, Hugging Face id or folder")
    pull.add_argument(
        "--tokenizer",
        action="store_true",
        help="without the weights: all that a run at a cluster needs here",
    )
    delete = actions.add_parser("delete", help="delete a model from this machine's caches")
    delete.add_argument("name")
    delete.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    workspace(delete)
    path = actions.add_parser("path", help="print the folder of a model")
    path.add_argument("name")


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN[@STEP]",
        help="run (name, id or folder) and checkpoint: STEP, best or newest (default: newest); "
        "with --environment a run, or a project folder",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--format", choices=["adapter", "merged", "gguf"])
    what.add_argument(
        "--environment",
        metavar="FOLDER",
        help="write the project as an environment package of verifiers into this folder",
    )
    parser.add_argument("--out", help="new or empty folder for the model; with --format")
    parser.add_argument(
        "--dtype",
        choices=["float32", "float16", "bfloat16", "q8_0"],
        help="precision (default: the base model's for merged, float16 for gguf)",
    )
    parser.add_argument(
        "--prompts",
        type=positive,
        default=32,
        help="number of stored trajectories to compare on (default 32, at most 100)",
    )
    parser.add_argument(
        "--shard-mb", type=positive, default=5000, help="MB per weight file (default 5000)"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="keep the export even if it differs from the trained model",
    )
    parser.add_argument(
        "--push",
        default="",
        metavar="ORG/NAME",
        help="upload the export to the Hugging Face Hub; a new repository is private",
    )
    parser.add_argument(
        "--token-stdin",
        action="store_true",
        help="read the Hub token from stdin instead of HF_TOKEN",
    )
    workspace(parser)
    as_json(parser)


def _serve_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="folder of a merged or adapter export")
    parser.add_argument("--port", type=int, default=8000, help="port on localhost (default 8000)")
    parser.add_argument("--base", help="base model folder, if the adapter does not specify one")
    parser.add_argument("--api-key", help="bearer token that clients must send")
    parser.add_argument(
        "--dtype",
        choices=["auto", "float32", "bfloat16"],
        help="precision of the computation (default: precision of the parity check)",
    )
    parser.add_argument("--context", type=positive, help="maximum tokens of prompt plus completion")


TITLE = "Models and export"
COMMANDS = {
    "chat": ("ask several models the same question, side by side", _chat),
    "models": ("search, download, list or delete base models", _models),
    "export": ("export a checkpoint: adapter, merged or GGUF, with a parity report", _export),
    "serve-model": (
        "serve an exported folder as an OpenAI-compatible endpoint on loopback",
        _serve_model,
    ),
}
"""Commands of this group: name → (help, function that adds its options)."""
