"""Options of the commands about demonstrations and supervised fine-tuning."""

import argparse

from engine.cli.options.general import as_json, money, positive, queue, settings, trust, workspace
from engine.cli.options.hosts import train_there


def _sft(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument("--data", metavar="FILE", help="demonstrations, JSON Lines (sft.data)")
    parser.add_argument("--seed", type=int, help="train.seed")
    settings(parser, "sft.epochs=2")
    parser.add_argument(
        "--from",
        dest="origin",
        default="",
        metavar="RUN@STEP",
        help="start from weights of another run (also RUN@best) or from an adapter folder",
    )
    parser.add_argument("--resume", metavar="RUN", help="resume this run (id or name)")
    queue(parser)
    parser.add_argument(
        "--check",
        action="store_true",
        help="only count the demonstrations and list invalid lines; do not train",
    )
    train_there(parser, clusters=True)
    workspace(parser)
    trust(parser)
    as_json(parser)


def _keep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep",
        default="best",
        metavar="RULE",
        help="trajectories to keep: best (of each scenario; default), best:0.5 (if its reward is "
        "at least 0.5), all, above:0.8; unscored trajectories are never kept",
    )
    parser.add_argument(
        "--out",
        default="demonstrations.jsonl",
        metavar="FILE",
        help="file in the project; keeps lines from other runs (default demonstrations.jsonl)",
    )


def _demonstrations(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", help="run (name, id or folder): an evaluation, an import, or a trained run"
    )
    _keep(parser)
    parser.add_argument("--step", type=int, help="only trajectories of this step")
    parser.add_argument(
        "--split",
        choices=["train", "validation"],
        help="only this split (default: train for training runs, else all)",
    )
    parser.add_argument("--contestant", default="", help="only this model of an evaluation")
    parser.add_argument("--count", action="store_true", help="only count; write nothing")
    as_json(parser)


def _distill(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument(
        "--teacher", required=True, metavar="MODEL", help="model in LiteLLM syntax (openai/gpt-5.4)"
    )
    parser.add_argument(
        "--scenarios", default="train", metavar="FILE", help="train (default), or a JSON Lines file"
    )
    parser.add_argument(
        "--attempts", type=positive, default=1, help="rollouts per scenario (default 1)"
    )
    _keep(parser)
    money(parser)
    parser.add_argument(
        "--base-url", help="URL of an OpenAI-compatible server, for models named openai/…"
    )
    parser.add_argument(
        "--again", action="store_true", help="repeat requests whose replies are already stored"
    )
    settings(parser, "evaluate.concurrency=2")
    workspace(parser)
    trust(parser)
    as_json(parser)


TITLE = "Supervised fine-tuning"
COMMANDS = {
    "sft": ("fine-tune on demonstrations (supervised) and follow the run", _sft),
    "distill": ("collect demonstrations from a teacher model", _distill),
    "demonstrations": ("write good trajectories of a run as demonstrations", _demonstrations),
}
"""Commands of this group: name → (help, function that adds its options)."""
