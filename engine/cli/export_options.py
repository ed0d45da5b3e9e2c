"""Options of the commands that give a checkpoint to others."""

import argparse

from engine.cli.options import as_json, positive, workspace


def export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN[@STEP]", help="run folder, and the step (default: the newest whole one)"
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
        help="stored attempts to compare on (32, at most 100)",
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


def serve_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="an export of ours, merged or adapter")
    parser.add_argument("--port", type=int, default=8000, help="on loopback (default 8000)")
    parser.add_argument("--base", help="folder of the adapter's base model, where it has no name")
    parser.add_argument("--api-key", help="what callers must send as bearer token")
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16"], default="auto")
    parser.add_argument(
        "--context", type=positive, help="longest prompt plus completion, in tokens"
    )
