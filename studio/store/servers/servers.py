"""State of the remote servers, and its texts. Free of I/O."""

import time
from dataclasses import dataclass

from engine.protocol.problems import Problem
from engine.protocol.requests.remote import HostList, HostTick, HostView, Question
from studio.text import formatting

BEHIND = 200
"""Number of events by which a mirror may lag behind without a notice."""

WHY = {
    "ssh.name_not_found": "host name not found",
    "ssh.refused": "connection refused",
    "ssh.timed_out": "timed out",
    "ssh.unreachable": "the server is unreachable",
    "ssh.silent": "not an SSH server",
    "ssh.auth_timed_out": "the login timed out",
    "ssh.closed": "the server closes the connection",
    "ssh.lost": "the connection was lost",
    "ssh.no_session": "the server refuses another session",
    "ssh.jump_cannot_reach": "the jump host cannot reach the server",
    "ssh.proxy_failed": "the ProxyCommand exited",
    "host.engine_silent": "the engine does not respond",
    "engine.unreachable": "the engine does not respond",
    "engine.not_started": "the engine does not start",
}
"""Problem code → short text, for problems that are retried automatically."""
STOPPED = {
    "host.not_installed": "no engine installed",
    "host.engine_stopped": "engine stopped",
    "host.other_home": "in use by another machine",
    "host.other_version": "engine version differs",
    "host.unfit": "the server cannot run an engine",
    "host.busy": "another installation is running",
    "host.disk_full": "disk full",
    "ssh.host_key_changed": "host key changed",
    "ssh.host_key_revoked": "host key revoked",
    "ssh.host_key_refused": "host key not confirmed",
    "ssh.host_key_unknown": "host key unknown",
    "ssh.passphrase_wrong": "passphrase was wrong",
    "ssh.passphrase_given_up": "passphrase was not given",
    "ssh.given_up": "a prompt was not answered",
    "ssh.password_wrong": "login failed",
    "ssh.no_key_accepted": "no key was accepted",
}
ASKS = {
    "host_key": "asks to verify its host key",
    "passphrase": "asks for a passphrase",
    "password": "asks for a password",
    "code": "asks for a code",
}
STAGES = {
    "surveying": "Surveying",
    "uploading": "Uploading",
    "installing": "Installing",
    "testing": "Testing",
    "syncing": "Uploading",
    "fetching": "Fetching",
    "removing": "Removing",
}
ENGINES = {"engine-cpu": "CPU engine", "engine-gpu": "GPU engine"}
COUNTED_FROM = 10_000
"""Ticks with a smaller total count items, not bytes."""


@dataclass(frozen=True)
class HostWords:
    """State of a server for display: texts, status dot, tone and icon."""

    text: str
    short: str
    dot: str
    """State of the dot: connected, connecting, asking, reconnecting, gone or none."""
    tone: str
    icon: str


def words_of(view: HostView, now: float) -> HostWords:
    """Return the state of a server for display, without its name. `now` is in Unix seconds."""
    match view.state:
        case "away":
            return HostWords("not connected", "not connected", "none", "neutral", "unplug")
        case "connecting":
            return _busy("connecting", "connecting…")
        case "starting":
            return _busy("starting engine", "starting engine…")
        case "asking":
            asks = ASKS[view.questions[0].kind] if view.questions else "asks for input"
            return HostWords(asks, asks, "asking", "warn", "circle-help")
        case "installing":
            return _busy(tick_words(view.tick) if view.tick else "installing", "installing…")
        case "connected":
            return _connected(view)
        case "reconnecting":
            return _reconnecting(view, now)
        case "stopped":
            return _stopped(view.problem)


def _busy(text: str, short: str) -> HostWords:
    return HostWords(text[:1].lower() + text[1:], short, "connecting", "info", "clock")


def _connected(view: HostView) -> HostWords:
    parts = ["connected"]
    if view.behind > BEHIND:
        parts.append(behind_words(view))
    elif view.latency_s is not None:
        parts.append(f"latency {formatting.duration(view.latency_s)}")
    if view.tick is not None:
        parts.append(tick_words(view.tick))
    device = view.info.device if view.info else "connected"
    return HostWords(" · ".join(parts), device, "connected", "good", "check")


def _reconnecting(view: HostView, now: float) -> HostWords:
    left = view.retry_at - now
    when = f"in {formatting.duration(float(round(left)))}" if left >= 0.5 else "now"
    text = f"reconnecting ({formatting.ordinal(view.failures + 1)} attempt {when})"
    if view.problem is not None:
        text += f": {WHY.get(view.problem.code, _sentence(view.problem))}"
    return HostWords(text, f"retry {when}", "reconnecting", "warn", "refresh-cw")


def _stopped(problem: Problem | None) -> HostWords:
    code = problem.code if problem else ""
    words = STOPPED.get(code) or (_sentence(problem) if problem else "stopped")
    harmless = code in ("host.not_installed", "host.engine_stopped")
    dot, tone, icon = ("none", "neutral", "box") if harmless else ("gone", "bad", "octagon-alert")
    return HostWords(words, STOPPED.get(code, "stopped"), dot, tone, icon)


def _sentence(problem: Problem) -> str:
    return problem.message.strip().rstrip(".")


def behind_words(view: HostView) -> str:
    """Describe how many events are not mirrored yet."""
    return f"{formatting.plural(view.behind, 'event')} not mirrored"


def tick_words(tick: HostTick) -> str:
    """Describe the progress of a job: "Uploading torch · 210 of 526 MB"."""
    words = f"{STAGES[tick.stage]} {tick.words}".strip()
    if tick.total > COUNTED_FROM:
        return f"{words} · {amount_words(tick.done, tick.total)}"
    return f"{words} · {tick.done} of {tick.total}" if tick.total else words


def amount_words(done: int, total: int) -> str:
    """Format progress in bytes: "210 of 526 MB", "0.3 of 4.2 GB"."""
    unit, size = (" GB", 1e9) if total >= 1e9 else (" MB", 1e6) if total >= 1e6 else (" kB", 1e3)
    decimals = 1 if size == 1e9 else 0
    return f"{done / size:.{decimals}f} of {total / size:.{decimals}f}{unit}"


def share_of(tick: HostTick | None) -> float | None:
    """Return the progress of a job, 0 to 1; None without a job or if its total is unknown."""
    return min(1.0, tick.done / tick.total) if tick is not None and tick.total else None


def start_words(view: HostView | None, name: str) -> str:
    """Describe what the start of a run on the server `name` waits for (`view` None: not listed)."""
    if view is None or view.state in ("away", "connecting", "reconnecting"):
        return f"Connecting to {name}"
    if view.state == "asking":
        return f"{name} {words_of(view, 0.0).text}"
    if view.state in ("starting", "installing"):
        return f"{name} is {words_of(view, 0.0).short.rstrip('…')}"
    if view.tick is not None and view.tick.total:
        return f"Syncing {amount_words(view.tick.done, view.tick.total)}"
    return f"Starting on {name}"


class HostStore:
    """Latest list of servers, and the times at which connections were lost."""

    def __init__(self) -> None:
        self.found = HostList(revision=0, hosts=[])
        self._since: dict[str, float] = {}

    @property
    def hosts(self) -> list[HostView]:
        return self.found.hosts

    def take(self, found: HostList, now: float | None = None) -> None:
        """Replace the list of servers, and record the loss of connections at `now` (Unix seconds;
        None: the clock)."""
        at = time.time() if now is None else now
        before = {view.spec.name for view in self.hosts if view.state == "connected"}
        for view in found.hosts:
            name = view.spec.name
            if view.state == "connected":
                self._since.pop(name, None)
            elif name in before:
                self._since[name] = at
        self.found = found

    def view(self, name: str) -> HostView | None:
        return next((view for view in self.hosts if view.spec.name == name), None)

    def away_since(self, name: str) -> float | None:
        """Unix time at which the connection was lost; None if unknown."""
        return self._since.get(name)

    def questions(self) -> list[tuple[str, Question]]:
        """Pending SSH prompts, each with the name of the server whose connection waits."""
        return [(view.spec.name, one) for view in self.hosts for one in view.questions]

    @property
    def counts_down(self) -> bool:
        """Return whether a countdown to a reconnection is shown."""
        return any(view.state == "reconnecting" for view in self.hosts)

    def run_states(self) -> dict[str, str]:
        """Return run id → state of the runs on servers, to detect changes made elsewhere."""
        return {run.id: run.state for view in self.hosts for run in view.runs}
