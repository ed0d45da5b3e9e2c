"""Options of the commands about remote servers."""

import argparse

ACTIONS = {
    "list": "all that are written down",
    "known": "aliases of your SSH configuration that are not",
    "add": "write one down; nothing is sent anywhere",
    "check": "connect, and say what it has; nothing is changed there",
    "install": "our engine, beside older ones",
    "rollback": "to the engine of before",
    "stop": "end its engine; runs can be resumed",
    "disconnect": "disconnect; remote runs continue",
    "fetch": "bring a checkpoint of a run there onto this machine",
    "bring-home": "a run there is this machine's from now on, with all it has",
    "send": "a run of this machine goes there, and can be resumed there",
    "remove": "everything of ours there",
    "forget": "strike it from the list",
}


MOVES = ("fetch", "bring-home", "send")


def train_there(parser: argparse.ArgumentParser) -> None:
    """Add options that select the server of a run."""
    parser.add_argument("--host", default="", metavar="NAME", help="on this server (see `hosts`)")
    parser.add_argument(
        "--lend-keys",
        action="store_true",
        help="with --host: give its engine the judges' keys for this run, in memory; without, "
        "judges are asked from here, and wait while this machine is away",
    )


def _hosts(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", dest="action", parser_class=type(parser)
    )
    for name, words in ACTIONS.items():
        action = actions.add_parser(name, help=words, description=words.capitalize() + ".")
        if name not in ("list", "known"):
            action.add_argument("name", help="what it is called here")
        if name in MOVES:
            what = "RUN@STEP" if name == "fetch" else "RUN"
            action.add_argument("project", help="project folder")
            action.add_argument("run", metavar=what, help="a run by its id or name")
        if name == "add":
            _spec(action)
        action.add_argument("--workspace", help="folder of projects")
        action.add_argument("--json", action="store_true", help="JSON lines on stdout")


def _spec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "address", nargs="?", help="[user@]host[:port], or an alias of ~/.ssh/config (the name)"
    )
    parser.add_argument(
        "--transport",
        choices=["asyncssh", "system"],
        default="asyncssh",
        help="`system` is the machine's own ssh: for keys in hardware and Kerberos",
    )
    parser.add_argument("--folder", default="", help="of ours there (default ~/.atelier-engine)")
    parser.add_argument(
        "--engine", choices=["auto", "engine-cpu", "engine-gpu"], default="auto", help="which one"
    )
    parser.add_argument(
        "--offline",
        choices=["auto", "yes", "no"],
        default="auto",
        help="whether packages are brought through the tunnel",
    )


def _attach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workspace", required=True, help="folder of projects")
    parser.add_argument("--stop", action="store_true", help="end it instead, if nothing goes on")


TITLE = "Remote servers"
COMMANDS = {
    "hosts": ("add, check, install or remove remote servers (SSH)", _hosts),
    "attach": ("find or start an engine and print its address (used over SSH)", _attach),
}
"""Commands of this group: name → (help, function that adds its options)."""
