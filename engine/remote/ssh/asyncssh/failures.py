"""Conversion of AsyncSSH connection errors into problems."""

import errno
import os
import re
import socket

import asyncssh
from asyncssh.config import ConfigParseError

from engine.protocol.problems import LaunchError
from engine.remote.ssh import problems
from engine.remote.ssh.asyncssh.client import Client
from engine.remote.ssh.asyncssh.keys import Tried
from engine.remote.ssh.problems import Place
from engine.remote.ssh.questions import Clock


def explain(
    error: Exception, place: Place, host: str, client: Client | None, tried: Tried, clock: Clock
) -> LaunchError:
    """Convert the exception of a failed attempt to connect to server `place` into a LaunchError.
    `host` is the name or address that was resolved, `client` has the stage reached, `tried` the
    keys, `clock` the timeout."""
    if isinstance(error, LaunchError):
        return error
    if isinstance(error, asyncssh.Error):
        return _ssh(error, place, client, tried)
    if isinstance(error, TimeoutError) and error.errno is None:
        return _late(place, client, clock.allowed_s)
    if isinstance(error, ConfigParseError):
        return problems.config_broken("", str(error))
    if isinstance(error, OSError):
        return _network(error, place, host)
    return problems.config_broken("", str(error))  # a ValueError: a setting that cannot be


def _late(place: Place, client: Client | None, seconds: float) -> LaunchError:
    stage = client.stage if client else "reach"
    if stage == "reach":
        return problems.timed_out(place, seconds)
    if stage == "greet":
        return problems.no_response(place, f"sent no SSH greeting within {seconds:.0f} s")
    return problems.auth_timed_out(place, seconds)


def _network(error: OSError, place: Place, host: str) -> LaunchError:
    if isinstance(error, socket.gaierror):
        return problems.name_not_found(place, host)
    number = error.errno
    if number is None and (found := re.search(r"\[Errno (\d+)\]", str(error))):
        number = int(found[1])  # of several addresses, each with an error of its own
    if number == errno.ECONNREFUSED:
        return problems.refused(place)
    if number == errno.ETIMEDOUT:
        return problems.timed_out(place)
    if number in (errno.ECONNRESET, errno.EPIPE):
        return problems.closed(place, os.strerror(number))
    return problems.unreachable(place, os.strerror(number) if number else str(error))


def _ssh(error: asyncssh.Error, place: Place, client: Client | None, tried: Tried) -> LaunchError:
    reason, banner = error.reason, client.banner if client else ""
    for text in (reason, banner):
        if problems.EXPIRED.search(text):
            return problems.account_expired(place, text)
    if "oo many authentication failures" in reason:
        return problems.too_many_failures(place, tried.shown)
    if isinstance(error, asyncssh.PermissionDenied):
        return _denied(place, client, tried)
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return problems.no_common_algorithm(place, reason)
    if isinstance(error, asyncssh.ProtocolError | asyncssh.ProtocolNotSupported):
        return problems.no_response(
            place, f"uses an unknown SSH version ({problems.printable(reason, 200)})"
        )
    return problems.closed(place, reason)


def _denied(place: Place, client: Client | None, tried: Tried) -> LaunchError:
    if client and client.typed:
        return problems.password_wrong(place, ", ".join(tried.shown))
    if tried.expired:
        return problems.certificate_expired(place, tried.shown)
    return problems.no_key_accepted(place, tried.shown)
