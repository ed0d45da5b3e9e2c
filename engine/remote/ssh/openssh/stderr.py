"""Parser of `ssh` error messages; the patterns follow OpenSSH's wording."""

import re
from collections.abc import Mapping, Sequence

from engine.protocol.problems import LaunchError
from engine.remote.ssh import problems
from engine.remote.ssh.base import REACH_S
from engine.remote.ssh.problems import Place

_AT = re.compile(r"^(?P<file>/[^\n:]*?)(?: line |:)(?P<line>\d+): (?P<why>.*)$", re.M)
_CHANGED = re.compile(
    r"The fingerprint for the (?P<kind>\S+) key sent by the remote host is\s+(?P<print>\S+?)\.?\s"
)
_OFFENDING = re.compile(r"^Offending (?P<kind>\S+) key in (?P<file>.*):(?P<line>\d+)\s*$", re.M)
_KEY_OF = re.compile(r"[Hh]ost key for (?P<name>\S+) (?:has changed|was revoked|is marked)")
_NO_KEY = re.compile(r"No (?P<kind>\S+) host key is known for (?P<name>\S+) and")
_CONNECT = re.compile(r"connect to host (?P<host>\S+) port (?P<port>\d+): (?P<why>.*?)\s*$", re.M)
_NAME = re.compile(r"Could not resolve hostname (?P<host>\S+?): ")
_DENIED = re.compile(r"^(?P<host>\S+): Permission denied \(", re.M)
_ONWARD = re.compile(r"open failed: (?P<kind>[a-z ]+): (?P<why>.*?)\s*$", re.M)
_NEGOTIATE = re.compile(r"Unable to negotiate with .*|no matching .* found.*")
_BANNER = re.compile(
    r"timed out during banner exchange|[Bb]anner line|Bad remote protocol version|"
    r"Protocol major versions differ|timed out while waiting to read"
)
_NOISE = re.compile(
    r"^(?:Warning: Permanently added|Connection closed by UNKNOWN|kex_exchange_identification|"
    r"banner exchange: Connection to UNKNOWN|"
    r"\*\* |@|Host key verification failed|stdio forwarding failed|$)"
)


def config_problem(stderr: str) -> LaunchError:
    """Problem for a configuration that `ssh -G` could not read."""
    found = _AT.search(stderr)
    where = f"{found['file']}:{found['line']}" if found else ""
    return problems.config_broken(where, found["why"] if found else last_line(stderr))


def explain(
    stderr: str, places: Mapping[str, Place], goal: Place, keys: Sequence[str], typed: bool
) -> LaunchError:
    """Convert what `ssh` printed on stderr into an error. `places` maps every name that `ssh` may
    use to a server of the route, `goal` is the target, `keys` are the offered keys, and `typed`
    tells whether a person typed a password or code."""

    def place(*names: str) -> Place:
        return next((places[name] for name in names if name in places), goal)

    if found := _KEY_OF.search(stderr):
        return _host_key(stderr, place(found["name"]), found["name"])
    if found := _NO_KEY.search(stderr):
        return problems.host_key_unknown(place(found["name"]), f"of kind {found['kind']}")
    if found := _NAME.search(stderr):
        return problems.name_not_found(place(found["host"]), found["host"])
    if found := _CONNECT.search(stderr):
        return _connect(place(f"{found['host']}:{found['port']}", found["host"]), found["why"])
    for line in stderr.splitlines():
        if problems.EXPIRED.search(line):
            return problems.account_expired(goal, line)
    if "oo many authentication failures" in stderr:
        return problems.too_many_failures(goal, keys)
    if found := _DENIED.search(stderr):
        host = found["host"].rpartition("@")[2]
        return _denied(place(found["host"], host), keys, typed)
    if found := _ONWARD.search(stderr):
        return _onward(places, goal, found["kind"], found["why"])
    if found := _NEGOTIATE.search(stderr):
        return problems.no_common_algorithm(goal, found[0])
    if _BANNER.search(stderr):
        return problems.no_response(goal)
    return problems.closed(goal, last_line(stderr))


def last_line(text: str) -> str:
    """Last line of ssh's stderr that is neither empty nor boilerplate such as "Warning: Permanently
    added"; empty if there is none."""
    lines = [line for line in text.splitlines() if not _NOISE.match(line)]
    return lines[-1] if lines else ""


def _host_key(stderr: str, place: Place, name: str) -> LaunchError:
    offending, now = _OFFENDING.search(stderr), _CHANGED.search(stderr)
    where = f"{offending['file']}:{offending['line']}" if offending else ""
    if not offending or "was revoked" in stderr or "marked as revoked" in stderr:
        return problems.host_key_revoked(place, where)
    shown = f"{now['kind']} {now['print']}" if now else "another key"
    remove = f"ssh-keygen -R '{name}' -f {offending['file']}"
    return problems.host_key_changed(
        place, f"another {offending['kind']} key", shown, where, remove
    )


def _connect(place: Place, why: str) -> LaunchError:
    if "refused" in why:
        return problems.refused(place)
    if "timed out" in why:
        return problems.timed_out(place, REACH_S)
    return problems.unreachable(place, why)


def _denied(place: Place, keys: Sequence[str], typed: bool) -> LaunchError:
    return problems.password_wrong(place) if typed else problems.no_key_accepted(place, keys)


def _onward(places: Mapping[str, Place], goal: Place, kind: str, why: str) -> LaunchError:
    jump = next((one for one in places.values() if one.server == goal.via), goal)
    if kind == "administratively prohibited":
        return problems.jump_forbids(jump, goal.server)
    return problems.jump_cannot_reach(jump, goal.server, why)
