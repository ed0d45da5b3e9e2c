"""Options of the commands about clusters."""

import argparse

ACTIONS = {
    "list": "all added clusters",
    "add": "add a cluster to the list, or change one; nothing is sent anywhere",
    "check": "test the connection, and list the models that the cluster serves",
    "remove": "remove a cluster from the list; nothing is changed on its server",
    "serve": "start SkyRL's server on this machine, until Ctrl C, and add it to the list",
}
KEY_WORDS = "Its API key is read from the variable TINKER_API_KEY, or typed without being shown."


def _clusters(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", dest="action", parser_class=type(parser)
    )
    for name, words in ACTIONS.items():
        key_words = f" {KEY_WORDS}" if name == "check" else ""
        whole = f"{words[0].upper()}{words[1:]}.{key_words}"
        action = actions.add_parser(name, help=words, description=whole)
        if name != "list":
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
        if name == "serve":
            action.add_argument("--model", required=True, help="base model (see `models list`)")
            action.add_argument(
                "--port", type=int, default=0, help="port on localhost (default: a free one)"
            )
        action.add_argument("--workspace", help="folder of projects")
        action.add_argument("--json", action="store_true", help="print JSON lines on stdout")


TITLE = "Clusters"
COMMANDS = {"clusters": ("add, test or remove clusters: servers with Tinker's API", _clusters)}
"""Commands of this group: name → (help, function that adds its options)."""
