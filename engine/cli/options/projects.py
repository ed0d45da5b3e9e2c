"""Options of the commands that create, configure and train projects."""

import argparse

from engine.cli.options.general import (
    Parser,
    as_json,
    confirm_address,
    money,
    positive,
    queue,
    settings,
    trust,
    workspace,
)
from engine.cli.options.hosts import train_there


def _new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="where the project is made")
    parser.add_argument("--sample", help="copy this sample (hello, …)")
    written = parser.add_argument_group("a project that an LLM writes")
    written.add_argument(
        "--describe",
        metavar="TEXT",
        help="what the task is, in a paragraph (@FILE reads it): the system prompt, the rubric and "
        "the scenarios are written for it",
    )
    written.add_argument("--model", help="who writes, as litellm names it (openai/gpt-5.4)")
    written.add_argument("--base-url", help="of an OpenAI-compatible server, for openai/… models")
    written.add_argument(
        "--count", type=positive, default=60, help="scenarios, a fifth for validation (60)"
    )
    money(written, budget=1.0)
    written.add_argument(
        "--enough", action="store_true", help="ask no more: a project of what is written by now"
    )
    written.add_argument(
        "--mcp",
        metavar="FILE",
        help="an mcp.json: the agent has the tools of its servers, and the scenarios need them",
    )
    written.add_argument("--judge", help="who judges by the rubric (the model that writes)")
    written.add_argument("--learner", default="", help="base model (default: the starter)")
    trust(parser)
    as_json(parser)


def _train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument("--steps", type=positive, help="train.steps")
    parser.add_argument("--seed", type=int, help="train.seed")
    settings(parser, "train.lr=2e-4")
    parser.add_argument(
        "--resume", metavar="RUN", help="resume this run (id or name) instead of starting one"
    )
    parser.add_argument(
        "--from",
        dest="origin",
        default="",
        metavar="RUN@STEP",
        help="begin with this checkpoint of another run (also RUN@best, RUN@newest), with that "
        "run's settings; or with a LoRA adapter made elsewhere: its folder",
    )
    parser.add_argument(
        "--replay",
        action="store_true",
        help="with --from: train again on the stored trajectories, and compare the weights",
    )
    queue(parser)
    parser.add_argument(
        "--baseline",
        action="store_true",
        help="only evaluate the untrained model on the training scenarios",
    )
    train_there(parser)
    workspace(parser)
    trust(parser)
    as_json(parser)


def _eval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        help="base, RUN@STEP, RUN@best, RUN (its newest checkpoint) or a model as litellm names it "
        "(openai/gpt-5.4); repeatable, the others are compared with the first (default: base, and "
        "the best checkpoint of the newest run)",
    )
    parser.add_argument(
        "--attempts", type=positive, help="rollouts of each model per scenario (evaluate.attempts)"
    )
    parser.add_argument(
        "--scenarios",
        default="validation",
        metavar="FILE",
        help="validation (default), train, or a JSON Lines file",
    )
    parser.add_argument(
        "--system",
        action="append",
        default=[],
        metavar="FILE",
        help="a system message in place of the agent's; repeatable, each model runs under each",
    )
    parser.add_argument("--seed", type=int, help="seed of the rollouts (train.seed)")
    parser.add_argument(
        "--judge",
        action=argparse.BooleanOptionalAction,
        help="whether the judge scores too (default: as the project sets it)",
    )
    settings(parser, "evaluate.budget_usd=1")
    parser.add_argument("--resume", metavar="RUN", help="resume this evaluation (id or name)")
    train_there(parser)
    workspace(parser)
    trust(parser)
    parser.add_argument(
        "--json", action="store_true", help="the result as one JSON object on stdout"
    )


def _mcp(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", parser_class=Parser, dest="action"
    )
    for action, words in (
        ("list", "those of mcp.json"),
        ("tools", "start each, and list what it offers; x marks what the model is offered"),
        ("add", "write one down: NAME -- COMMAND ARGUMENTS, or NAME --url ADDRESS"),
        ("choose", "offer only these tools of a server (none named: all)"),
        ("remove", "take one out"),
    ):
        one = actions.add_parser(action, help=words, description=words.capitalize() + ".")
        one.add_argument("project", help="project folder")
        if action not in ("list", "tools"):
            one.add_argument("name", help="what the server is called here")
        if action == "add":
            one.add_argument("--url", help="of a server that is reached over streamable HTTP")
        if action in ("add", "choose"):
            one.add_argument("words", nargs=argparse.REMAINDER, metavar="…")
        if action in ("tools", "choose"):
            trust(one)
        as_json(one)


def _trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", nargs="?", default="", help="project folder")
    confirm_address(parser)
    parser.add_argument(
        "--confirm-file",
        action="append",
        default=[],
        metavar="FILE",
        help="the project may read this file outside of it; repeatable, trusts nothing else",
    )


TITLE = "Projects and training"
COMMANDS = {
    "new": ("create a project: empty, from a sample, or from a description", _new),
    "mcp": ("list, add and remove the MCP servers of a project; choose their tools", _mcp),
    "trust": ("trust a project from elsewhere: it may run code and send data", _trust),
    "train": ("train a project and follow the run", _train),
    "eval": ("compare models on the scenarios of a project: base, checkpoints, API models", _eval),
}
"""Commands of this group: name → (help, function that adds its options)."""
