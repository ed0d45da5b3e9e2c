"""What can be typed. Bad usage is exit 2 with one sentence."""

import argparse
import importlib
from collections.abc import Callable
from typing import NoReturn

from engine.cli.export_options import export_options, serve_model_options
from engine.cli.gpu_options import gpu_options
from engine.cli.host_options import HOST_COMMANDS, HOST_OPTIONS, train_there
from engine.cli.options import as_json, positive, workspace
from engine.cli.sft_options import COMMANDS as SFT_COMMANDS

COMMANDS = {
    "serve": "run an engine for a workspace (studio and CLI start one by themselves)",
    "train": "train a project, and watch it here",
    "eval": "compare models on the scenarios of a project: base, checkpoints, providers' models",
    "runs": "list the runs of a project",
    "checkpoints": "what a run keeps and why; pin, unpin, delete",
    "trajectories": "list the trajectories of a run",
    "import": "make a run of attempts from elsewhere: an .art folder, or a JSONL file",
    "judge": "compare the attempts of a run, or of a JSONL file, by a rubric",
    "label": "your labels of a run: export, import, undo, redo, or end a review",
    "agreement": "how far the judges of a run go along with you, and with themselves",
    "chat": "put a question or a scenario to models side by side",
    "export": "write a checkpoint as files that other programs load, and prove them",
    "serve-model": "serve an exported folder as an OpenAI-compatible endpoint on loopback",
    "models": "list, pull or find models",
    "environments": "what is installed beside Atelier, and which engine is started",
    "new": "make a project, from a sample or empty",
    "doctor": "check this machine",
    "bench": "measure training and sampling, beside TRL where asked",
}


MODULES = {"import": "imports", "eval": "evaluation", "serve-model": "serve_model"}
"""Of commands whose name cannot be that of a module."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. See `{self.prog} --help`.\n")


def parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m engine", description="Atelier's engine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    others = {name: words for name, (words, _) in SFT_COMMANDS.items()}
    for name, words in (COMMANDS | others | HOST_COMMANDS).items():
        command = commands.add_parser(name, help=words, description=words.capitalize() + ".")
        options = {name: options for name, (_, options) in SFT_COMMANDS.items()}
        (OPTIONS | options | HOST_OPTIONS)[name](command)
        command.set_defaults(command=_late(name))
    return parser.parse_args(argv)


def _late(name: str) -> Callable[[argparse.Namespace], int]:
    """The command's module is imported when it runs."""

    def run(arguments: argparse.Namespace) -> int:
        module = importlib.import_module(f"engine.cli.{MODULES.get(name, name)}")
        result: int = module.run(arguments)
        return result

    return run


def _serve(parser: argparse.ArgumentParser) -> None:
    workspace(parser)


def _train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument("--steps", type=positive, help="train.steps")
    parser.add_argument("--seed", type=int, help="train.seed")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="values",
        help="any setting of project.toml, as train.lr=2e-4; repeatable",
    )
    parser.add_argument(
        "--resume", metavar="RUN", help="go on with this run (id or name) instead of starting one"
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
        help="with --from: learn again from the attempts stored behind it, and compare the weights",
    )
    parser.add_argument(
        "--queue", action="store_true", help="where another run is going on: start after it"
    )
    parser.add_argument(
        "--baseline",
        action="store_true",
        help="only measure the untrained model on the training scenarios",
    )
    train_there(parser)
    workspace(parser)
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
        "--attempts", type=positive, help="of each model at each scenario (evaluate.attempts)"
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
    parser.add_argument("--seed", type=int, help="of the attempts (train.seed)")
    parser.add_argument(
        "--judge",
        action=argparse.BooleanOptionalAction,
        help="whether the project's judge scores too (as the project says)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="values",
        help="any setting of project.toml, as evaluate.budget_usd=1; repeatable",
    )
    parser.add_argument("--resume", metavar="RUN", help="go on with this evaluation (id or name)")
    train_there(parser)
    workspace(parser)
    parser.add_argument(
        "--json", action="store_true", help="the result as one JSON object on stdout"
    )


def _runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    as_json(parser)


def _checkpoints(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run folder")
    wish = parser.add_mutually_exclusive_group()
    wish.add_argument("--pin", type=int, metavar="STEP", help="keep it whatever the rules say")
    wish.add_argument("--unpin", type=int, metavar="STEP", help="leave it to the rules again")
    wish.add_argument("--delete", type=int, metavar="STEP", help="clear it away now")
    parser.add_argument("--note", default="", help="why it is pinned")
    workspace(parser)
    as_json(parser)


def _trajectories(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run folder")
    parser.add_argument("--step", type=int, help="only this step")
    parser.add_argument("--split", choices=["train", "validation"], help="only this split")
    parser.add_argument("--unscored", action="store_true", help="only unscored ones")
    parser.add_argument("--search", default="", help="words that must occur")
    parser.add_argument(
        "--limit", type=positive, default=50, help="at most so many rows (default 50)"
    )
    as_json(parser)


def _import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", help="project folder")
    parser.add_argument(
        "source", help="JSONL file of chat messages, or an .art folder, or that of one model in it"
    )
    parser.add_argument("--model", default="", help="which one, where the folder holds several")
    as_json(parser)


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
    parser.add_argument("--budget", type=float, metavar="USD", help="spend at most this")
    parser.add_argument(
        "--price",
        type=float,
        nargs=2,
        metavar=("IN", "OUT"),
        help="dollars for a million tokens, where the price list lacks the model",
    )
    parser.add_argument("--passes", type=positive, help="most looks at a group (default 3)")
    parser.add_argument("--step", type=int, help="only this step")
    parser.add_argument("--split", choices=["train", "validation"], help="only this split")
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


def _environments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", parser_class=Parser, dest="action"
    )
    for action, words in (
        ("list", "what there is, and what of it is installed"),
        ("install", "install one; what was cut off goes on from there"),
        ("verify", "compare every file with what was installed, and try it"),
        ("repair", "where something is damaged, make a new one and use that"),
        ("remove", "take one away, with what was brought for it"),
        ("use", "start this engine from now on: built-in, or engine-gpu"),
        ("rollback", "start the engine from now on that was in use before"),
    ):
        one = actions.add_parser(action, help=words, description=words.capitalize() + ".")
        if action not in ("list", "rollback"):
            one.add_argument("name")
        if action == "install":
            one.add_argument("--use", action="store_true", help="then start this engine")
        as_json(one)


def _new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="where the project is made")
    parser.add_argument("--sample", help="copy this sample (hello, …)")


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
        help="tokens of prompt and completion, attempts of a group, groups; repeatable "
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
    gpu_options(parser)
    as_json(parser)


OPTIONS = {
    "serve": _serve,
    "train": _train,
    "eval": _eval,
    "runs": _runs,
    "checkpoints": _checkpoints,
    "trajectories": _trajectories,
    "import": _import,
    "judge": _judge,
    "label": _label,
    "agreement": _agreement,
    "chat": _chat,
    "export": export_options,
    "serve-model": serve_model_options,
    "models": _models,
    "environments": _environments,
    "new": _new,
    "doctor": as_json,
    "bench": _bench,
}
