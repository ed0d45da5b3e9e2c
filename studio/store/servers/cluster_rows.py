"""Rows of clusters and results of their connection tests, as text. Free of I/O."""

import time
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from engine.protocol.addresses import is_loopback
from engine.protocol.config.project import ProjectConfig
from engine.protocol.requests.clusters import (
    ClusterClient,
    ClusterReport,
    ClusterSpec,
    ClusterView,
    SkyrlServer,
)
from engine.protocol.requests.remote import HostView
from studio.store.servers.servers import words_of
from studio.text import formatting

CLIENTS: tuple[tuple[ClusterClient, str], ...] = (
    ("tinker", "Tinker (hosted service)"),
    ("tinker-json", "Tinker 0.24 (SkyRL 0.3)"),
)
"""SDKs with their labels."""
MOST_MODELS = 12
"""Number of models that are listed."""
LOG_LINES, LINE_CHARS = 3, 160
"""Lines of SkyRL's log that are shown, and their maximum length in characters."""
HERE = "this machine"
CHANGING = ("installing", "starting", "restarting")
"""States of SkyRL that change by themselves."""
CONNECTABLE = ("away", "reconnecting", "stopped")
"""States of a server in which it is connected on request."""
SERVER_DOTS = {
    "off": "none",
    "installing": "connecting",
    "starting": "connecting",
    "running": "connected",
    "restarting": "reconnecting",
    "failed": "gone",
}

LACKING = {
    "off": "is off",
    "installing": "is being installed",
    "starting": "is starting",
    "restarting": "is restarting",
    "failed": "has failed",
}


@dataclass(frozen=True)
class ClusterRow:
    """Row of one cluster; `dot` is a state of the status dot."""

    name: str
    words: str
    dot: str
    facts: str
    problem: str = ""
    log: str = ""
    """Last lines of SkyRL's log, if it failed."""
    actions: frozenset[str] = frozenset({"test"})
    """Actions besides edit and remove: test, connect, start, stop, copy (the launch command)."""
    command: str = ""
    """Launch command of SkyRL; empty if unknown."""


def row_of(view: ClusterView, testing: bool, host: HostView | None = None) -> ClusterRow:
    """Return the row of a cluster in Settings; `testing`: a connection test is running; `host` is
    the server through which it is reached (None: not in the list of servers)."""
    spec = view.spec
    if spec.host and (host is None or host.state != "connected"):
        words, dot = _away_words(spec.host, host)
        actions = frozenset({"connect"}) if host and host.state in CONNECTABLE else frozenset[str]()
        return ClusterRow(spec.name, words, dot, _facts(view), actions=actions)
    tested = _tested(view, testing)
    return tested if spec.skyrl is None else _skyrl_row(view, tested)


def _tested(view: ClusterView, testing: bool) -> ClusterRow:
    """Return the row of a cluster as its latest connection test shows it."""
    words, dot, problem = "not tested", "none", ""
    if testing:
        words, dot = "testing the connection", "connecting"
    elif view.report is not None:
        words = f"serves {formatting.plural(len(view.report.models), 'model')}"
        dot = "connected"
    elif view.problem is not None:
        words, dot = "connection failed", "gone"
        problem = f"{view.problem.message} {view.problem.hint}".strip()
    return ClusterRow(view.spec.name, words, dot, _facts(view), problem)


def _skyrl_row(view: ClusterView, tested: ClusterRow) -> ClusterRow:
    """Return the row of a cluster that Atelier starts; `tested` is its row without that."""
    spec, server = view.spec, view.server
    if server is None:
        words, actions = "state not loaded yet", frozenset[str]()
        return replace(tested, words=words, dot="none", problem="", actions=actions)
    copies = {"copy"} if server.command else set[str]()
    words = server_words(spec, server)
    if server.state == "running":
        known = tested.dot != "none"
        return replace(
            tested,
            words=f"{server.state} · {tested.words}" if known else words,  # both must fit
            dot=tested.dot if known else SERVER_DOTS[server.state],
            actions=frozenset({"test", "stop", *copies}),
            command=server.command,
        )
    return replace(
        tested,
        words=words,
        dot=SERVER_DOTS[server.state],
        problem=_server_problem(spec, server),
        log=_log_end(server),
        actions=frozenset({"stop" if is_up(server) else "start", *copies}),
        command=server.command,
    )


def is_up(server: SkyrlServer | None) -> bool:
    """Return whether SkyRL runs or is about to (None: unknown, no)."""
    return server is not None and server.state in ("running", *CHANGING)


def place_of(spec: ClusterSpec) -> str:
    """Return the machine on which Atelier starts SkyRL for a cluster."""
    return spec.host or HERE


def server_words(spec: ClusterSpec, server: SkyrlServer) -> str:
    """Return the state of SkyRL's server."""
    place = place_of(spec)
    return {
        "off": "off",
        "installing": f"installing SkyRL on {place}…",
        "starting": f"starting on {place}…",
        "running": f"running on {place}",
        "restarting": f"restarting on {place}…",
        "failed": f"failed on {place}",
    }[server.state]


def _server_problem(spec: ClusterSpec, server: SkyrlServer) -> str:
    """Return why SkyRL failed or is restarted, and where its log is; empty without a problem."""
    if server.problem is None:
        return ""
    log = f"Log on {place_of(spec)}: {server.log}" if server.log else ""
    parts = (server.problem.message, server.problem.hint, log)
    return " ".join(part for part in parts if part)


def _log_end(server: SkyrlServer) -> str:
    """Return the last lines of SkyRL's log, if it has failed."""
    if server.problem is None or server.state != "failed":
        return ""
    lines = [line.strip() for line in server.problem.detail.splitlines() if line.strip()]
    return "\n".join(line[:LINE_CHARS] for line in lines[-LOG_LINES:])


def _away_words(name: str, host: HostView | None) -> tuple[str, str]:
    """Return state and dot of a cluster whose server `name` is not connected."""
    if host is None:
        return f"{name} is not in the list of servers", "gone"
    match host.state:
        case "connecting":
            return f"connecting to {name}…", "connecting"
        case "asking" | "starting" | "installing":
            words = words_of(host, time.time())
            return f"{name}: {words.text}", words.dot
        case "reconnecting":
            return f"reconnecting to {name}…", "reconnecting"
        case _:
            return f"{name} is not connected", "none"


def _facts(view: ClusterView) -> str:
    """Return address and SDK of a cluster; of SkyRL as Atelier starts it, model and port."""
    spec = view.spec
    if spec.skyrl is None:
        return f"{spec.place} · {view.report.client if view.report else dict(CLIENTS)[spec.client]}"
    port = view.server.port if view.server is not None else 0
    return f"{spec.skyrl.model} · port {port} on {place_of(spec)}" if port else spec.skyrl.model


def kind_of(view: ClusterView | None, *, placed: bool) -> str:
    """Describe a cluster in the header: SkyRL, with its machine if `placed`, or the server it is
    reached through (`view` None: not in the list)."""
    if view is not None and view.spec.skyrl:
        return f"SkyRL on {place_of(view.spec)}" if placed else "SkyRL"
    return f"cluster on {view.spec.host}" if view is not None and view.spec.host else "cluster"


def models_words(report: ClusterReport) -> str:
    """Return the models that a cluster serves, one per line with its maximum context."""
    lines = [
        f"{model.name} · {model.max_context:,} tokens" if model.max_context else model.name
        for model in report.models[:MOST_MODELS]
    ]
    if more := len(report.models) - MOST_MODELS:
        lines += [f"and {more} more"] if more > 0 else []
    return "\n".join(lines)


def step_tokens(config: ProjectConfig) -> int:
    """Return the largest number of tokens that one turn of all rollouts of a step samples: groups ×
    rollouts × tokens per response."""
    return config.train.groups * config.train.group_size * config.train.max_tokens


def sending_words(view: ClusterView | None, name: str, config: ProjectConfig) -> tuple[str, str]:
    """Return what training on a cluster (`view` None: not in the list) sends to its server, as a
    sentence and as a short line for the preflight check."""
    if view is None:
        return f"There is no cluster called {name}. Add it in Settings.", f"No cluster {name}"
    train = config.train
    amount = (
        f"A step samples up to {formatting.count(step_tokens(config))} tokens per turn there "
        f"({train.groups} groups × {train.group_size} rollouts × {train.max_tokens:,} tokens)"
    )
    lack, short_lack = _lack(view)
    if view.spec.skyrl and not view.spec.host:
        words = f"Tokens stay on this machine: {name} samples and trains with SkyRL here."
        return f"{words} {amount}.{lack}", f"SkyRL on {HERE}{short_lack}"
    place, short = _destination(view.spec)
    words = f"Tokens leave this machine: {name} samples and trains {place}. {amount}; "
    return (
        f"{words}prompts and responses are sent.{lack}",
        f"Tokens are sent to {short}{short_lack}",
    )


def _destination(spec: ClusterSpec) -> tuple[str, str]:
    """Return where a cluster computes, as part of a sentence and as a name."""
    address = urlsplit(spec.address).hostname or spec.address
    if not spec.host:
        return f"at {address}", address
    if is_loopback(spec.address):
        return f"on {spec.host}", spec.host
    return f"at {address}, reached through {spec.host}", address


def lacking_words(view: ClusterView) -> str:
    """Return why SkyRL does not serve a cluster that Atelier starts; empty if it runs, or its state
    is unknown."""
    if view.server is None or view.server.state == "running":
        return ""
    return f"SkyRL {LACKING[view.server.state]}"


def _lack(view: ClusterView) -> tuple[str, str]:
    """Return the end of the sentence and of the short line if SkyRL does not run."""
    words = lacking_words(view)
    if not words or view.server is None:
        return "", ""
    start = ": start it in Settings" if view.server.state in ("off", "failed") else ""
    return f" {words} there{start}.", f", {words}"
