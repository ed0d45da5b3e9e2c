"""Problems of SSH connections as messages with hints, and whether an automatic retry can help."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine.protocol.problems import LaunchError, Problem

PASSING = frozenset(
    {
        "ssh.name_not_found", "ssh.refused", "ssh.timed_out", "ssh.unreachable", "ssh.silent",
        "ssh.auth_timed_out", "ssh.closed", "ssh.lost", "ssh.jump_cannot_reach",
        "ssh.proxy_failed", "ssh.no_session",
    }
)  # fmt: skip
"""Codes of problems that may disappear without any action."""


def may_pass(problem: Problem) -> bool:
    """Whether an automatic retry can help: True if, for example, the network is down, False if a
    host key changed."""
    return problem.code in PASSING


EXPIRED = re.compile(
    r"(account|password)\b.{0,30}\bexpired|account is (currently )?not available|account is locked",
    re.IGNORECASE,
)
"""Messages of servers about expired accounts (PAM, and OpenSSH without it)."""


@dataclass(frozen=True)
class Place:
    """Server and its position on the route."""

    server: str
    """`user@name:port`."""
    via: str = ""
    """Jump host through which the server is reached."""
    goal: str = ""
    """Target behind a jump host."""

    def __str__(self) -> str:
        return (
            f"The jump host {self.server} on the way to {self.goal}" if self.goal else self.server
        )


def printable(text: str, longest: int = 2000) -> str:
    """Text of a server made safe for display: no escape sequences and control characters, and at
    most `longest` characters."""
    text = re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)", "", text)
    kept = "".join(one for one in text.replace("\r", "") if one == "\n" or one.isprintable())
    return kept.strip()[:longest]


def reason_of(why: str) -> str:
    """Reason `why`, as given by a server, in one safe line without a final period, to be part of a
    sentence; "no reason given" if it is empty."""
    return " ".join(printable(why, 300).split()).rstrip(".") or "no reason given"


def of(code: str, message: str, hint: str, detail: str = "") -> LaunchError:
    return LaunchError.of(f"ssh.{code}", message, hint, detail=detail)


def bad_address(text: str) -> LaunchError:
    return of(
        "bad_address",
        f"“{printable(text, 200)}” is not the address of a server.",
        "Write [user@]host[:port], or an alias of ~/.ssh/config.",
    )


def name_not_found(place: Place, name: str) -> LaunchError:
    return of(
        "name_not_found",
        f"{place}: the name {name} cannot be resolved.",
        "Check the name, and whether the server's network or VPN is connected.",
    )


def refused(place: Place) -> LaunchError:
    return of(
        "refused",
        f"{place} refused the connection: nothing listens on that port.",
        "Check the port, and whether the SSH server is running there.",
    )


def timed_out(place: Place, seconds: float | None = None) -> LaunchError:
    """Error for a server that did not respond within `seconds` (None: the system's own timeout)."""
    bound = "in time" if seconds is None else f"within {seconds:.0f} s"
    return of(
        "timed_out",
        f"{place} did not answer {bound}.",
        "Check the address, the network and firewalls in between.",
    )


def unreachable(place: Place, why: str) -> LaunchError:
    return of(
        "unreachable",
        f"{place} cannot be reached: {why}.",
        "Check the network here, and the VPN if one is needed.",
    )


def no_response(place: Place, why: str = "it does not answer with SSH") -> LaunchError:
    return of(
        "silent",
        f"{place} accepted the connection, but {why}.",
        "Check the port; another service may listen there, or the server is overloaded.",
    )


def auth_timed_out(place: Place, seconds: float) -> LaunchError:
    return of(
        "auth_timed_out",
        f"{place} did not finish the login within {seconds:.0f} s.",
        "The server may be overloaded; see the log of its SSH server (sshd).",
    )


def closed(place: Place, why: str) -> LaunchError:
    return of(
        "closed",
        f"{place} closed the connection before the login was complete: {reason_of(why)}.",
        "Check the log of the SSH server (sshd); it may limit the number of connections.",
    )


def lost(server: object, why: str) -> LaunchError:
    return of(
        "lost",
        f"The connection to {server} was lost: {reason_of(why)}.",
        "Reconnecting as soon as the server can be reached.",
    )


def no_session(server: str, why: str) -> LaunchError:
    return of(
        "no_session",
        f"{server} refused another session: {printable(why)}.",
        "Close other connections to it, or raise MaxSessions in its sshd_config.",
    )


def host_key_refused(place: Place, key: str) -> LaunchError:
    return of(
        "host_key_refused",
        f"{place} presented the host key {key}, which you did not confirm; nothing was sent.",
        "Compare the fingerprint with the one from its administrator, then connect again.",
    )


def host_key_unknown(place: Place, key: str) -> LaunchError:
    return of(
        "host_key_unknown",
        f"{place} presented the host key {key}, which is unknown, and StrictHostKeyChecking "
        "forbids asking you.",
        "Add the host key to known_hosts, or set StrictHostKeyChecking to ask.",
    )


def host_key_changed(place: Place, was: str, now: str, where: str, remove: str) -> LaunchError:
    return LaunchError.of(
        "ssh.host_key_changed",
        f"{place} presented {now}, but its known host key is {was}: this may be a "
        "man-in-the-middle attack. Nothing was sent to it.",
        f"Only if its administrator confirms the new key, run `{remove}` and connect again.",
        where,
    )


def host_key_revoked(place: Place, where: str) -> LaunchError:
    return LaunchError.of(
        "ssh.host_key_revoked",
        f"{place} presented a host key that is marked as revoked; nothing was sent to it.",
        "Do not use this server until its administrator has given it a new key.",
        where,
    )


def host_certificate(place: Place, why: str) -> LaunchError:
    return of(
        "host_certificate",
        f"{place} presents an invalid host certificate: {printable(why)}.",
        "Ask its administrator to have the host certificate renewed.",
    )


def passphrase_wrong(place: Place, key: str, tries: int) -> LaunchError:
    return of(
        "passphrase_wrong",
        f"{place}: the passphrase of {key} was wrong {tries} times.",
        "Connect again to enter another passphrase, or add the key to ssh-agent.",
    )


def cancelled_by_user(place: Place, kind: str, what: str) -> LaunchError:
    return of(
        "passphrase_given_up" if kind == "passphrase" else "given_up",
        f"{place}: login cancelled, because {what} was not entered.",
        "Connect again to enter it.",
    )


def password_wrong(place: Place, methods: str = "") -> LaunchError:
    return of(
        "password_wrong",
        f"{place} rejected the password or code that you entered.",
        "Check user, password and code, and connect again.",
        detail=methods,
    )


def no_key_accepted(place: Place, tried: Sequence[str]) -> LaunchError:
    if not tried:
        return of(
            "no_key_accepted",
            f"{place} requires an SSH key, and none was found.",
            "Create one with `ssh-keygen`, install it with `ssh-copy-id`, or start ssh-agent.",
        )
    return of(
        "no_key_accepted",
        f"{place} accepted none of these keys: {', '.join(tried)}.",
        "Check the user name, and that the public key is in ~/.ssh/authorized_keys there.",
    )


def certificate_expired(place: Place, tried: Sequence[str]) -> LaunchError:
    return of(
        "certificate_expired",
        f"{place} accepted none of these keys, one of which has an expired certificate: "
        f"{', '.join(tried)}.",
        "Have the certificate renewed.",
    )


def account_expired(place: Place, why: str) -> LaunchError:
    return of(
        "account_expired",
        f"{place} does not let this account log in anymore: {reason_of(why)}.",
        "Ask its administrator, or log in by hand to set a new password.",
    )


def too_many_failures(place: Place, tried: Sequence[str]) -> LaunchError:
    shown = f" after trying {', '.join(tried)}" if tried else ""
    return of(
        "too_many_failures",
        f"{place} closed the connection{shown}: too many failed logins.",
        "Set the right key with IdentityFile and IdentitiesOnly yes in ~/.ssh/config.",
    )


def no_common_algorithm(place: Place, why: str) -> LaunchError:
    return of(
        "no_common_algorithm",
        f"{place} and this machine share no SSH algorithm.",
        "Update the server's SSH software, or allow the algorithm in ~/.ssh/config.",
        detail=printable(why),
    )


def forwarding_forbidden(server: str, port: int) -> LaunchError:
    return of(
        "forwarding_forbidden",
        f"{server} forbids forwarding to port {port}, where its engine listens.",
        "Ask its administrator for `AllowTcpForwarding local` (or PermitOpen) in sshd_config.",
    )


def jump_forbids(place: Place, onward: str) -> LaunchError:
    return of(
        "jump_forbids",
        f"The jump host {place.server} does not allow connections to {onward}.",
        "Ask its administrator for AllowTcpForwarding, or use another jump host.",
    )


def jump_cannot_reach(place: Place, onward: str, why: str) -> LaunchError:
    return of(
        "jump_cannot_reach",
        f"The jump host {place.server} cannot reach {onward}: {reason_of(why)}.",
        "Check the address as it is seen from the jump host, and whether the server is up.",
    )


def jump_loop(server: str) -> LaunchError:
    return of(
        "jump_loop",
        f"The configuration makes {server} its own jump host.",
        "Check ProxyJump in ~/.ssh/config: a jump host must not match its own ProxyJump line.",
    )


def proxy_failed(place: Place, command: str, why: str) -> LaunchError:
    return of(
        "proxy_failed",
        f"The ProxyCommand to {place.server} exited before the connection was established: "
        f"{reason_of(why)}.",
        "Run that command in a terminal to see its error.",
        detail=command,
    )


def config_broken(where: str, why: str) -> LaunchError:
    return LaunchError.of(
        "ssh.config_broken",
        f"The SSH configuration cannot be read: {printable(why, 300)}.",
        "Fix the file; check it with `ssh -G NAME`.",
        where,
    )


def needs_system(place: Place, setting: str) -> LaunchError:
    return of(
        "needs_system",
        f"{place}: the configuration sets {setting}, which only the system's ssh supports.",
        "Choose the transport `system` for this server.",
    )


def ssh_missing() -> LaunchError:
    return of(
        "ssh_missing",
        "There is no `ssh` on this machine.",
        "Install OpenSSH, or choose the transport `asyncssh` for this server.",
    )


def upload_failed(server: str, path: str, why: str) -> LaunchError:
    return of(
        "upload_failed",
        f"{server} refused the file {path}: {reason_of(why)}.",
        "Check free space, quota and permissions of that folder there.",
    )


def socket_unusable(path: str, why: str) -> LaunchError:
    return LaunchError.of(
        "ssh.socket_unusable",
        f"The local socket for the SSH connection cannot be used: {why}.",
        "Set XDG_RUNTIME_DIR to a private folder with a short name.",
        path,
    )


def known_hosts_unusable(path: str, why: str) -> LaunchError:
    return LaunchError.of(
        "ssh.known_hosts_unusable",
        f"The known host keys cannot be read or written: {why}.",
        "Check owner and permissions of that file.",
        path,
    )
