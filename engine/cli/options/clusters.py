"""Options of the commands about clusters."""

import argparse

ACTIONS = {
    "list": "all added clusters",
    "add": "add a cluster to the list, or change one; nothing is sent anywhere",
    "check": "test the connection, and list the models that the cluster serves",
    "remove": "remove a cluster from the list, and end SkyRL's server if Atelier runs it",
    "serve": "start SkyRL's server on this machine or a server, and add it to the list",
    "start": "start SkyRL's server of a listed cluster again, with the same settings",
    "stop": "end SkyRL's server of a cluster; its checkpoints are kept",
    "commands": "show the commands that start SkyRL by hand, also on several nodes",
}
SETTINGS = {
    "adapters": "adapters in memory, one of them the untrained model (default 4)",
    "most-rank": "maximum rank of an adapter (default 32)",
    "sequences": "maximum number of sequences that are sampled together (default 16)",
    "micro-batch": "sequences per forward and backward pass (default 8)",
    "gpus": "GPUs that share each weight matrix (default 1)",
}
"""Options of `serve` about SkyRL's server, with their help."""
KEY_WORDS = "Its API key is read from the variable TINKER_API_KEY, or typed without being shown."


def _clusters(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", dest="action", parser_class=type(parser)
    )
    for name, words in ACTIONS.items():
        key_words = f" {KEY_WORDS}" if name == "check" else ""
        whole = f"{words[0].upper()}{words[1:]}.{key_words}"
        action = actions.add_parser(name, help=words, description=whole)
        if name not in ("list", "commands"):
            action.add_argument("name", help="name of the cluster")
        if name == "add":
            action.add_argument(
                "--address", required=True, metavar="URL", help="base URL of its API"
            )
            action.add_argument(
                "--client",
                choices=["tinker", "tinker-json"],
                default="tinker",
                help="SDK: tinker-json for SkyRL 0.3, else tinker (default)",
            )
            action.add_argument(
                "--through",
                default="",
                metavar="SERVER",
                help="server (see `hosts list`) from which the URL is reached, by its SSH tunnel",
            )
        if name in ("serve", "commands"):
            action.add_argument("--model", required=True, help="base model (see `models list`)")
        if name == "serve":
            _add_settings(action)
        if name == "commands":
            action.add_argument("--nodes", type=int, default=1, help="number of nodes (default 1)")
            action.add_argument(
                "--port", type=int, default=8000, help="port on 127.0.0.1 (default 8000)"
            )
        action.add_argument("--workspace", help="folder of projects")
        action.add_argument("--json", action="store_true", help="print JSON lines on stdout")


def _add_settings(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--on", default="", metavar="SERVER", help="server (see `hosts list`); else this machine"
    )
    for option, words in SETTINGS.items():
        action.add_argument(f"--{option}", type=int, help=words)


TITLE = "Clusters"
COMMANDS = {"clusters": ("add, test or remove clusters: servers with Tinker's API", _clusters)}
"""Commands of this group: name → (help, function that adds its options)."""
