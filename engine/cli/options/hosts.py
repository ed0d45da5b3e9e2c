"""Options of the commands about remote servers."""

import argparse

ACTIONS = {
    "list": "all added servers",
    "known": "aliases in your SSH configuration that are not added yet",
    "add": "add a server to the list; nothing is sent anywhere",
    "check": "connect and inspect the server; nothing is changed there",
    "install": "install the engine of this Atelier version; older ones are kept",
    "rollback": "go back to the previous version of the engine",
    "stop": "stop the server's engine; its runs can be resumed",
    "disconnect": "disconnect; remote runs continue",
    "fetch": "download a checkpoint of a remote run",
    "bring-home": "move a remote run with all its data to this machine",
    "send": "move a run to the server, where it can be resumed",
    "remove": "delete Atelier with all its data on the server",
    "forget": "remove the server from the list",
}


MOVES = ("fetch", "bring-home", "send")


def train_there(parser: argparse.ArgumentParser, clusters: bool = False) -> None:
    """Add options that select the server of a run, or its cluster if it can use `clusters`."""
    places = parser.add_mutually_exclusive_group()
    places.add_argument("--host", default="", metavar="NAME", help="server to use (see `hosts`)")
    if clusters:
        places.add_argument(
            "--cluster",
            default="",
            metavar="NAME",
            help="cluster to use (see `clusters`): sets backend.cluster for this run",
        )
    parser.add_argument(
        "--lend-keys",
        action="store_true",
        help="with --host: lend the judges' API keys to the server, in memory, for this run; "
        "otherwise this machine calls the judges, and the run waits while this machine is offline",
    )


def _hosts(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", dest="action", parser_class=type(parser)
    )
    for name, words in ACTIONS.items():
        action = actions.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        if name not in ("list", "known"):
            action.add_argument("name", help="name of the server")
        if name in MOVES:
            what = "RUN@STEP" if name == "fetch" else "RUN"
            action.add_argument("project", help="project folder")
            action.add_argument("run", metavar=what, help="id or name of a run")
        if name == "add":
            _spec(action)
        action.add_argument("--workspace", help="folder of projects")
        action.add_argument("--json", action="store_true", help="print JSON lines on stdout")


def _spec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "address",
        nargs="?",
        help="[user@]host[:port], or an alias of ~/.ssh/config (default: the name)",
    )
    parser.add_argument(
        "--transport",
        choices=["asyncssh", "system"],
        default="asyncssh",
        help="`system` uses the installed ssh, for hardware keys and Kerberos",
    )
    parser.add_argument(
        "--folder",
        default="",
        help="folder on the server to install in (default ~/.atelier-engine)",
    )
    parser.add_argument(
        "--engine",
        choices=["auto", "engine-cpu", "engine-gpu"],
        default="auto",
        help="engine to install",
    )
    parser.add_argument(
        "--offline",
        choices=["auto", "yes", "no"],
        default="auto",
        help="whether the server is offline, so that packages are uploaded through SSH",
    )


def _attach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workspace", required=True, help="folder of projects")
    parser.add_argument("--stop", action="store_true", help="stop an idle engine instead")


TITLE = "Remote servers"
COMMANDS = {
    "hosts": ("add, check, install or remove remote servers (SSH)", _hosts),
    "attach": ("find or start an engine and print its address (used over SSH)", _attach),
}
"""Commands of this group: name → (help, function that adds its options)."""
