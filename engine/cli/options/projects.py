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
    parser.add_argument("folder", help="folder to create the project in")
    parser.add_argument("--sample", help="copy this sample (hello, …)")
    written = parser.add_argument_group("a project drafted by an LLM")
    written.add_argument(
        "--describe",
        metavar="TEXT",
        help="paragraph that describes the task, or @FILE; system prompt, rubric and scenarios are "
        "written from it",
    )
    written.add_argument(
        "--model", help="model that drafts the project, in LiteLLM syntax (openai/gpt-5.4)"
    )
    written.add_argument(
        "--base-url", help="URL of an OpenAI-compatible server, for models named openai/…"
    )
    written.add_argument(
        "--count",
        type=positive,
        default=60,
        help="number of scenarios, a fifth of them for validation (default 60)",
    )
    money(written, budget=1.0)
    written.add_argument(
        "--enough", action="store_true", help="create the project from the scenarios drafted so far"
    )
    written.add_argument(
        "--mcp",
        metavar="FILE",
        help="mcp.json with the agent's MCP servers; scenarios will need their tools",
    )
    written.add_argument("--judge", help="judge model (default: the model that drafts)")
    written.add_argument("--learner", default="", help="base model (default: the starter model)")
    bridged = parser.add_argument_group(
        "a project of an environment of verifiers or a task of Inspect"
    )
    bridged.add_argument(
        "--verifiers",
        metavar="NAME",
        help="package on PyPI (NAME, NAME==VERSION, NAME:MODULE) or folder with an environment; "
        "its data set becomes scenarios, its reward functions reward parts",
    )
    bridged.add_argument(
        "--inspect",
        metavar="TASK",
        help="FILE.py@TASK, or PACKAGE/TASK of a package on PyPI; its data set becomes scenarios, "
        "its scorers reward parts",
    )
    bridged.add_argument(
        "--arguments",
        default="",
        metavar="JSON",
        help='arguments of the environment or task, {"name": …}; "model_roles" names the models '
        "of a task's scorers",
    )
    bridged.add_argument(
        "--scenarios",
        type=positive,
        default=500,
        metavar="N",
        help="maximum number of scenarios for training from its data set (default 500)",
    )
    bridged.add_argument(
        "--install", action="store_true", help="install its packages and read its data set at once"
    )
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
        help="start from a checkpoint of another run (also RUN@best, RUN@newest) and use "
        "its settings; or start from the folder of a LoRA adapter made elsewhere",
    )
    parser.add_argument(
        "--replay",
        action="store_true",
        help="with --from: repeat the updates on stored trajectories and compare weights",
    )
    queue(parser)
    parser.add_argument(
        "--baseline",
        action="store_true",
        help="only evaluate the untrained model on the training scenarios",
    )
    train_there(parser, clusters=True)
    workspace(parser)
    trust(parser)
    as_json(parser)


def _eval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        help="base, RUN@STEP, RUN@best, RUN (its newest checkpoint) or a LiteLLM name "
        "(openai/gpt-5.4); repeatable, the first is the reference (default: base and "
        "the best checkpoint of the newest run)",
    )
    parser.add_argument(
        "--attempts", type=positive, help="rollouts per model and scenario (evaluate.attempts)"
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
        help="file with a system message that replaces the agent's; repeatable",
    )
    parser.add_argument("--seed", type=int, help="seed of the rollouts (train.seed)")
    parser.add_argument(
        "--judge",
        action=argparse.BooleanOptionalAction,
        help="whether the judge also scores (default: project setting)",
    )
    settings(parser, "evaluate.budget_usd=1")
    parser.add_argument("--resume", metavar="RUN", help="resume this evaluation (id or name)")
    train_there(parser)
    workspace(parser)
    trust(parser)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _mcp(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", parser_class=Parser, dest="action"
    )
    for action, words in (
        ("list", "MCP servers of mcp.json"),
        ("tools", "start each server and list its tools; x marks those the model can call"),
        ("add", "add a server: NAME -- COMMAND ARGUMENTS, or NAME --url URL"),
        ("choose", "let the model call only these tools (all if none are given)"),
        ("remove", "remove a server"),
    ):
        one = actions.add_parser(action, help=words, description=f"{words[0].upper()}{words[1:]}.")
        one.add_argument("project", help="project folder")
        if action not in ("list", "tools"):
            one.add_argument("name", help="name of the server")
        if action == "add":
            one.add_argument("--url", help="URL of a streamable HTTP server")
        if action == "add":
            one.add_argument(
                "words",
                nargs=argparse.REMAINDER,
                metavar="-- COMMAND ARGUMENT",
                help="command that starts a stdio server",
            )
        if action == "choose":
            one.add_argument(
                "words", nargs=argparse.REMAINDER, metavar="TOOL", help="names of the tools"
            )
        if action in ("tools", "choose"):
            trust(one)
        as_json(one)


def _trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", nargs="?", default="", help="project folder")
    parser.add_argument(
        "--sandbox",
        action="store_true",
        help="and run its agent in a sandbox: sets agent.sandbox in its project.toml",
    )
    confirm_address(parser)
    parser.add_argument(
        "--confirm-file",
        action="append",
        default=[],
        metavar="FILE",
        help="let the project read this file outside its folder, and nothing more; repeatable",
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
