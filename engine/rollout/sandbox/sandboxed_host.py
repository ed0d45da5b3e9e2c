"""Agent host in a sandbox: imports the code once, then forks each rollout into a sandbox of its own.

usage: sandboxed_host.py OPTIONS RIGHTS LINE MAPS   (OPTIONS is JSON, the others are descriptors)

Messages are JSON lines over LINE, as in `agents/host.py`; `score` runs rewards.py on the files that
an agent has left. Over RIGHTS, descriptors are exchanged with the engine: listening sockets of a
rollout, and archives of its files. Over MAPS, the launcher maps the users of new namespaces. Needs
only Python 3.9.
"""

import errno
import json
import os
import select
import signal
import socket
import sys
import threading

import sandboxed_kernel as kernel
from host_agent import AgentCode
from host_results import Failure
from sandboxed_rollout import Rollout

MOST_LINE = 64 * 2**20
REAP_MS = 20
OWN_MODULES = ("host_agent", "host_results", "sandboxed_kernel", "sandboxed_rollout")
SPACES = (
    "The machine's limit of namespaces is reached, or a security module forbids them.",
    "See `atelier doctor`.",
)


class ForkHost:
    """Answers messages; every rollout runs in a fork of this process."""

    def __init__(self, options, rights, line, maps):
        self.options = options
        self.rights = rights
        self.line = line
        self.maps = maps
        self.code = AgentCode(
            options["project"], options["file"], options["command"], options["output_bytes"]
        )
        self.running = {}
        """By the descriptor from which the answer comes: [id, PID, bytes so far]."""
        self.ending = []
        """PIDs of rollouts that have answered; the kernel needs some time to end their namespaces."""
        self.archives = {}
        """Descriptors of archives that the engine has sent, by rollout."""

    def serve(self):
        """Answer messages until the engine closes the line."""
        poll = select.poll()
        poll.register(self.line, select.POLLIN)
        rest = b""
        while True:
            self.ending = [pid for pid in self.ending if not has_ended(pid)]
            for descriptor, _ in poll.poll(REAP_MS if self.ending else None):
                if descriptor == self.line.fileno():
                    data = self.line.recv(65536)
                    if not data:
                        os._exit(0)
                    *lines, rest = (rest + data).split(b"\n")
                    if len(rest) > MOST_LINE:
                        os._exit(1)
                    for line in lines:
                        started = self.answer(json.loads(line))
                        if started is not None:
                            poll.register(started, select.POLLIN)
                elif self.read(descriptor):
                    poll.unregister(descriptor)
                    os.close(descriptor)

    def answer(self, message):
        """Answer a message. Returns a descriptor to read from if a rollout was started."""
        number, op = message["id"], message["op"]
        if op == "cancel":
            for one, pid, _ in self.running.values():
                if one == number:
                    kill(pid)
        elif op == "ping":
            self.send(number, "ok", {})
        elif op == "load":
            self.load(number)
        else:
            try:
                return self.start(message)
            except OSError as error:
                self.send(number, "error", not_started(error))
        return None

    def send(self, number, kind, value):
        self.line.sendall(json.dumps({"id": number, kind: value}).encode() + b"\n")

    def load(self, number):
        try:
            self.code.load(agent=not self.options["verifies"], rewards=self.options["verifies"])
            if threading.active_count() > 1:
                raise Failure(
                    "sandbox.threads",
                    "%s starts threads when it is imported, and cannot be forked for each rollout."
                    % self.options["file"],
                    "Start threads and clients in rollout(), not at import time.",
                    self.options["file"],
                )
            self.send(number, "ok", {})
        except Failure as failure:
            self.send(number, "error", failure.problem)

    def start(self, message):
        """Fork a rollout, and return the descriptor from which its answer comes. Raises OSError."""
        archive = self.archive(message.get("rollout", "")) if message["op"] == "score" else None
        answer, answer_write = os.pipe()
        pid_read, pid_write = os.pipe()
        keeper = os.fork()
        if keeper == 0:
            self.keep(message, archive, answer_write, pid_write)
        os.close(answer_write)
        os.close(pid_write)
        if archive is not None:
            os.close(archive)
        text = b""
        while True:
            data = os.read(pid_read, 1000)
            if not data:
                break
            text += data
        os.close(pid_read)
        os.waitpid(keeper, 0)
        pid, _, problem = text.decode(errors="replace").partition(" ")
        if problem or not pid:
            os.close(answer)
            raise OSError(errno.EPERM, problem or "it ended")
        self.running[answer] = [message["id"], int(pid), []]
        return answer

    def keep(self, message, archive, answer, pid_write):
        """Make the namespaces of a rollout, fork its first process, tell its PID, and exit."""
        try:
            kernel.unshare(kernel.ALL_NAMESPACES)
            self.maps.send(b".")
            mapped = self.maps.recv(1000).decode(errors="replace")
            if mapped != "ok":
                raise OSError(errno.EPERM, mapped)
            pid = os.fork()
            if pid == 0:
                os.close(pid_write)
                self.line.close()
                self.maps.close()
                Rollout(self.code, self.options, message, self.rights, archive, answer).run()
            os.write(pid_write, b"%d" % pid)
        except BaseException as error:
            os.write(pid_write, b"0 " + str(getattr(error, "strerror", "") or error).encode()[:500])
        os._exit(0)

    def read(self, descriptor):
        """Read from a rollout; returns whether it has ended, and then sends its answer."""
        number, pid, data = self.running[descriptor]
        more = os.read(descriptor, 2**18)
        if more:
            data.append(more)
            return False
        del self.running[descriptor]
        self.ending.append(pid)
        try:
            kind, value = json.loads(b"".join(data))
        except ValueError:
            kind, value = (
                "error",
                {
                    "code": "sandbox.died",
                    "message": "The sandbox of the rollout was ended from outside.",
                },
            )
        self.send(number, kind, value)
        return True

    def archive(self, rollout):
        """Descriptor of the archive that the engine has sent for a rollout."""
        while rollout not in self.archives:
            text, descriptors, _, _ = socket.recv_fds(self.rights, 1000, 1)
            if not descriptors:
                raise OSError(errno.EPIPE, "the engine sent no files")
            self.archives[text.decode()] = descriptors[0]
        return self.archives.pop(rollout)


def has_ended(pid):
    """Whether a child has ended; it is waited for then."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def not_started(error):
    return {
        "code": "sandbox.not_started",
        "message": "The sandbox of a rollout could not be started: %s." % (error.strerror or error),
        "hint": " ".join(SPACES),
    }


def main():
    options = json.loads(sys.argv[1])
    rights, line, maps = [socket.socket(fileno=int(one)) for one in sys.argv[2:5]]
    for one in (rights, line, maps):
        one.set_inheritable(False)
        one.setblocking(True)
    sys.path.pop(0)  # our own folder: its names are not for the agent's imports
    for name in OWN_MODULES:
        del sys.modules[name]
    kernel.control(kernel.SET_SUBREAPER, 1)
    ForkHost(options, rights, line, maps).serve()


if __name__ == "__main__":
    main()
