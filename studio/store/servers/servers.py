"""Servers as the studio knows them: what was last heard of each, and the words for it. Pure."""

import time
from dataclasses import dataclass

from engine.protocol.problems import Problem
from engine.protocol.requests.remote import HostList, HostTick, HostView, Question
from studio.text import formatting

BEHIND = 200
"""So many events are on their way at any time."""

WHY = {
    "ssh.name_not_found": "its name is not known to the network",
    "ssh.refused": "nothing listens on its port",
    "ssh.timed_out": "it does not answer",
    "ssh.unreachable": "the server cannot be reached",
    "ssh.silent": "it does not speak SSH",
    "ssh.auth_timed_out": "the login takes too long",
    "ssh.closed": "it closes the connection",
    "ssh.lost": "the connection was lost",
    "ssh.no_session": "it opens no further session",
    "ssh.jump_cannot_reach": "the jump host cannot reach it",
    "ssh.proxy_failed": "the ProxyCommand ended",
    "host.engine_silent": "its engine does not answer",
    "engine.unreachable": "its engine does not answer",
    "engine.not_started": "its engine does not start",
}
"""Of what is tried again by itself, short enough for a line."""
STOPPED = {
    "host.not_installed": "no engine there yet",
    "host.engine_stopped": "its engine was stopped",
    "host.other_home": "works for another machine",
    "host.other_version": "its engine is of another version",
    "host.unfit": "no engine can run there",
    "host.busy": "somebody else installs there",
    "host.disk_full": "its disk is full",
    "ssh.host_key_changed": "host key changed: stopped",
    "ssh.host_key_revoked": "host key revoked: stopped",
    "ssh.host_key_refused": "host key not confirmed",
    "ssh.host_key_unknown": "host key not known",
    "ssh.passphrase_wrong": "passphrase was wrong",
    "ssh.passphrase_given_up": "passphrase was not given",
    "ssh.given_up": "an answer was not given",
    "ssh.password_wrong": "login was not accepted",
    "ssh.no_key_accepted": "no key was accepted",
}
ASKS = {
    "host_key": "asks whether its key is right",
    "passphrase": "asks for a passphrase",
    "password": "asks for a password",
    "code": "asks for a code",
}
STAGES = {
    "looking": "Looking around",
    "bringing": "Bringing",
    "installing": "Installing",
    "trying": "Trying it out",
    "syncing": "Bringing",
    "fetching": "Fetching",
    "removing": "Removing",
}
ENGINES = {"engine-cpu": "Engine for the processor", "engine-gpu": "GPU engine"}
COUNTED_FROM = 10_000
"""Ticks of less count things, not bytes."""


@dataclass(frozen=True)
class HostWords:
    """How a server is: for a row, for the pill, and which dot, tone and icon go with it."""

    text: str
    short: str
    dot: str
    """connected, connecting, asking, reconnecting, gone or none."""
    tone: str
    icon: str


def words_of(view: HostView, now: float) -> HostWords:
    """Without its name. `now` is in seconds since 1970."""
    match view.state:
        case "away":
            return HostWords("not connected", "not connected", "none", "neutral", "unplug")
        case "connecting":
            return _busy("connecting", "connecting…")
        case "starting":
            return _busy("starting its engine", "starting its engine…")
        case "asking":
            asks = ASKS[view.questions[0].kind] if view.questions else "asks something"
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
        parts.append(f"answers in {formatting.duration(view.latency_s)}")
    if view.tick is not None:
        parts.append(tick_words(view.tick))
    device = view.info.device if view.info else "connected"
    return HostWords(" · ".join(parts), device, "connected", "good", "check")


def _reconnecting(view: HostView, now: float) -> HostWords:
    left = view.retry_at - now
    when = f"in {formatting.duration(float(round(left)))}" if left >= 0.5 else "now"
    text = f"reconnecting ({formatting.ordinal(view.failures + 1)} try {when})"
    if view.problem is not None:
        text += f": {WHY.get(view.problem.code, _sentence(view.problem))}"
    return HostWords(text, f"next try {when}", "reconnecting", "warn", "refresh-cw")


def _stopped(problem: Problem | None) -> HostWords:
    code = problem.code if problem else ""
    words = STOPPED.get(code) or (_sentence(problem) if problem else "stopped")
    harmless = code in ("host.not_installed", "host.engine_stopped")
    dot, tone, icon = ("none", "neutral", "box") if harmless else ("gone", "bad", "octagon-alert")
    return HostWords(words, STOPPED.get(code, "stopped"), dot, tone, icon)


def _sentence(problem: Problem) -> str:
    return problem.message.strip().rstrip(".")


def behind_words(view: HostView) -> str:
    return f"{formatting.plural(view.behind, 'event')} behind"


def tick_words(tick: HostTick) -> str:
    """Bringing torch · 210 of 526 MB."""
    words = f"{STAGES[tick.stage]} {tick.words}".strip()
    if tick.total > COUNTED_FROM:
        return f"{words} · {amount_words(tick.done, tick.total)}"
    return f"{words} · {tick.done} of {tick.total}" if tick.total else words


def amount_words(done: int, total: int) -> str:
    """210 of 526 MB; 0.3 of 4.2 GB."""
    unit, size = (" GB", 1e9) if total >= 1e9 else (" MB", 1e6) if total >= 1e6 else (" kB", 1e3)
    decimals = 1 if size == 1e9 else 0
    return f"{done / size:.{decimals}f} of {total / size:.{decimals}f}{unit}"


def share_of(tick: HostTick | None) -> float | None:
    """None where nobody knows how much it is."""
    return min(1.0, tick.done / tick.total) if tick is not None and tick.total else None


def start_words(view: HostView | None, name: str) -> str:
    """Of a run that is about to begin there."""
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
    """The last list, and since when a server that was there is not."""

    def __init__(self) -> None:
        self.found = HostList(revision=0, hosts=[])
        self._since: dict[str, float] = {}

    @property
    def hosts(self) -> list[HostView]:
        return self.found.hosts

    def take(self, found: HostList, now: float | None = None) -> None:
        """A newer list, or that of another engine."""
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
        """In seconds since 1970; None where it was not seen to go."""
        return self._since.get(name)

    def questions(self) -> list[tuple[str, Question]]:
        """All that wait for a person, with the server whose connection waits."""
        return [(view.spec.name, one) for view in self.hosts for one in view.questions]

    @property
    def counts_down(self) -> bool:
        """Whether words change by themselves."""
        return any(view.state == "reconnecting" for view in self.hosts)

    def lives(self) -> dict[str, str]:
        """Runs on servers, and how they are: to notice what was begun or ended elsewhere."""
        return {run.id: run.state for view in self.hosts for run in view.runs}
