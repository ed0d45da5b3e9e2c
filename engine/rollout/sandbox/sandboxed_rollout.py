"""Rollout in its sandbox: process 1 of the namespaces runs the code in a child, watches the limits,
ends whatever is left, and writes the answer. Needs only Python 3.9.
"""

import asyncio
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import tarfile
import time
import traceback

import sandboxed_kernel as kernel

WATCH_S = 0.1
MB = 2**20
CLOCK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
DESCRIPTORS = 4096
OWN = (".tmp", ".shm")
"""Folders of the scratch folder that stand for /tmp and /dev/shm."""


class Rollout:
    """Rollout that is run by this process; `run` does not return."""

    def __init__(self, code, options, message, rights, archive, answer):
        self.code = code
        self.options = options
        self.message = message
        self.rights = rights
        self.archive = archive
        self.answer = answer
        self.scratch = options["scratch"]
        self.exceeded = None
        """Problem of the limit that ended the rollout."""
        self.notes = []
        """Sentences on what was refused, dropped or ended, for the trajectory."""

    def run(self):
        try:
            self.build()
            kind, value = self.attempt()
        except BaseException as error:
            kind, value = (
                "error",
                {
                    "code": "sandbox.failed",
                    "message": "The sandbox of the rollout failed: %s." % error,
                    "detail": traceback.format_exc()[-4000:],
                },
            )
        with open(self.answer, "wb") as file:
            file.write(json.dumps([kind, value]).encode())
        os._exit(0)

    def build(self):
        """Give this rollout its own /proc, scratch folder, /tmp, /dev/shm, terminals and loopback
        device, with the addresses of its model and of the proxy."""
        flags = kernel.NO_SUID | kernel.NO_DEVICES
        kernel.mount("", "/", "", kernel.RECURSIVE | kernel.PRIVATE)
        kernel.mount("proc", "/proc", "proc", flags | kernel.READ_ONLY)
        size = "mode=700,size=%dm,nr_inodes=%d" % (self.options["disk_mb"], 200_000)
        kernel.mount("tmpfs", self.scratch, "tmpfs", flags, size)
        for name in OWN:
            os.mkdir(os.path.join(self.scratch, name))
        kept = [(place, os.open(place, os.O_PATH)) for place in self.options["below_tmp"]]
        kernel.mount(os.path.join(self.scratch, ".tmp"), "/tmp", "", kernel.BIND)
        for place, descriptor in kept:
            os.makedirs(place, exist_ok=True)
            kernel.bind("/proc/self/fd/%d" % descriptor, place)
            os.close(descriptor)
        kernel.mount(os.path.join(self.scratch, ".shm"), "/dev/shm", "", kernel.BIND)
        options = "newinstance,ptmxmode=0666,mode=620"
        kernel.mount("devpts", "/dev/pts", "devpts", kernel.NO_SUID | kernel.NO_EXEC, options)
        kernel.raise_loopback()
        if self.archive is not None:
            with open(self.archive, "rb") as file, tarfile.open(fileobj=file) as archive:
                archive.extractall(self.scratch, filter="data")
        for kind, port in self.message.get("ports", {}).items():
            with socket.create_server(("127.0.0.1", port), backlog=128) as listening:
                self.hand_over(kind, listening.fileno())

    def hand_over(self, kind, descriptor):
        """Send a descriptor to the engine, with the name of this rollout."""
        text = json.dumps({"rollout": self.message["rollout"], "kind": kind}).encode()
        socket.send_fds(self.rights, [text], [descriptor])

    def attempt(self):
        """Run the code in a child process until it ends or exceeds a limit; returns its answer."""
        results, results_write = os.pipe()
        output, output_write = os.pipe()
        child = os.fork()
        if child == 0:
            self.become_agent(results_write, output_write)
        os.close(results_write)
        os.close(output_write)
        text, printed, status = self.watch(child, results, output)
        left = [name for pid, name in processes() if pid != os.getpid()]
        try:
            os.kill(-1, signal.SIGKILL)
            while True:
                os.waitpid(-1, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        if left and self.exceeded is None:
            self.notes.append("ended what the agent left running: %s" % words(left))
        return self.conclude(text, printed, status)

    def become_agent(self, results, output):
        """Give up all privileges, run the code, write its answer, and exit."""
        try:
            os.dup2(output, 1)
            os.dup2(output, 2)
            results = os.dup2(results, 3, inheritable=False)
            os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            self.limit()
            kernel.drop_privileges()
            kernel.refuse_system_calls()
            os.setsid()
            sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)
            sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)
            os.environ.update(self.variables())
            value = asyncio.run(self.result())
        except BaseException as error:
            value = ["error", {"code": "sandbox.failed", "message": "%s" % error}]
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            data = json.dumps(value).encode()
        except (TypeError, ValueError) as error:
            problem = {"code": "agent.bad_result", "message": "The agent's result: %s." % error}
            data = json.dumps(["error", problem]).encode()
        with open(results, "wb") as file:
            file.write(data)
        os._exit(0)

    async def result(self):
        if self.message["op"] == "score":
            return await self.code.verdict(self.message, self.scratch)
        return await self.code.answer(self.message, self.scratch, with_result=True)

    def variables(self):
        proxy = self.message.get("ports", {}).get("proxy")
        address = "http://127.0.0.1:%d" % proxy if proxy else ""
        found = {"HOME": self.scratch, "TMPDIR": "/tmp", "ATELIER_SCRATCH": self.scratch}
        if address:
            found.update(HTTPS_PROXY=address, https_proxy=address, NO_PROXY="127.0.0.1,localhost",
                         no_proxy="127.0.0.1,localhost")  # fmt: skip
        return found

    def limit(self):
        most = self.options
        for kind, value in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_DATA, most["memory_mb"] * MB),
            (resource.RLIMIT_NPROC, most["processes"]),
            (resource.RLIMIT_NOFILE, DESCRIPTORS),
            (resource.RLIMIT_MEMLOCK, 0),
        ):
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))

    def watch(self, child, results, output):
        """Read what the child writes until it has ended or exceeded a limit. Returns its answer,
        its output up to the limit, and its wait status (None if it was ended)."""
        text, printed, dropped = [], [], 0
        room = self.options["output_bytes"]
        answer_room = 6 * room + MB
        ended = os.pidfd_open(child)
        poll = select.poll()
        for one in (ended, results, output):
            poll.register(one, select.POLLIN)
        next_look, finishing = time.monotonic() + WATCH_S, False
        while self.exceeded is None:
            wait_s = 0.0 if finishing else max(0.0, next_look - time.monotonic())
            ready = [one for one, _ in poll.poll(wait_s * 1000)]
            if finishing and not ready:
                break
            for descriptor in ready:
                data = b"" if descriptor == ended else os.read(descriptor, 2**18)
                if not data:
                    poll.unregister(descriptor)
                    finishing = finishing or descriptor == ended
                elif descriptor == results:
                    answer_room -= len(data)
                    text.append(data)
                    if answer_room < 0:
                        most = self.options["output_bytes"]
                        self.exceed("output", "returned more than %d bytes" % most)
                else:
                    kept = data[: max(0, room)]
                    room -= len(kept)
                    dropped += len(data) - len(kept)
                    printed.append(kept)
            if time.monotonic() >= next_look:
                reap(child)
                self.check_limits()
                next_look = time.monotonic() + WATCH_S
        if dropped:
            self.notes.append("dropped %d bytes of output" % dropped)
        status = os.waitpid(child, 0)[1] if finishing else None
        return b"".join(text), b"".join(printed).decode(errors="replace"), status

    def check_limits(self):
        memory = cpu = count = 0
        for pid, _ in processes():
            if pid == os.getpid():
                continue
            try:
                with open("/proc/%d/statm" % pid) as file:
                    fields = file.read().split()
                memory += (int(fields[1]) - int(fields[2])) * PAGE
                with open("/proc/%d/stat" % pid) as file:
                    fields = file.read().rpartition(")")[2].split()
                cpu += int(fields[11]) + int(fields[12])
                count += int(fields[17])
            except (OSError, IndexError, ValueError):
                continue
        most = self.options
        if count > most["processes"]:
            self.exceed("processes", "started more than %d processes" % most["processes"])
        elif memory > most["memory_mb"] * MB:
            self.exceed("memory", "used more than %d MB of memory" % most["memory_mb"])
        elif most["cpu_s"] and cpu / CLOCK > most["cpu_s"]:
            self.exceed("cpu", "used more than %g s of processor time" % most["cpu_s"])

    def exceed(self, limit, what):
        settings = {"output": "max_output_bytes", "cpu": "cpu_s", "memory": "memory_mb"}
        setting = settings.get(limit, limit)
        self.exceeded = {
            "code": "sandbox.%s" % limit,
            "message": "The agent %s, and was ended." % what,
            "hint": "Use less, or raise agent.%s." % setting,
        }

    def conclude(self, text, printed, status):
        """Final answer from what the child wrote; hands its files over for rewards.py."""
        free = os.statvfs(self.scratch)
        if free.f_bavail * free.f_frsize < 64 * 1024:
            self.notes.append("the scratch folder was full (%d MB)" % self.options["disk_mb"])
        elif free.f_favail < 100:
            self.notes.append("the scratch folder had too many files")
        try:
            kind, value = json.loads(text)
        except ValueError:
            kind, value = (
                "error",
                {
                    "code": "agent.died",
                    "message": "The agent ended its own process: %s." % ended_words(status),
                },
            )
        if self.exceeded is not None:
            kind, value = "error", self.exceeded
        notes = "".join("sandbox: %s\n" % note for note in self.notes)
        printed = printed[: max(0, self.options["output_bytes"] - len(notes) - 1)]
        shown = printed + ("\n" if printed and notes and printed[-1] != "\n" else "") + notes
        if kind == "ok" and self.message["op"] == "run":
            value["output"] = shown
            if self.message.get("keeps_files"):
                self.hand_over_files()
        elif kind == "error" and shown:
            value["detail"] = (value.get("detail", "") + "\nPrinted:\n" + shown)[-8000:]
        return kind, value

    def hand_over_files(self):
        """Send the engine an archive of the scratch folder."""
        archive = ctypes.CDLL(None).memfd_create(b"scratch", 1)
        with open(archive, "wb+") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                for name in sorted(os.listdir(self.scratch)):
                    if name not in OWN:
                        tar.add(os.path.join(self.scratch, name), name)
            file.seek(0)
            self.hand_over("files", file.fileno())


def reap(child):
    """Wait, without blocking, for ended processes other than `child`."""
    for pid, state in processes(zombies=True):
        if state == "Z" and pid != child:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass  # not our child: its parent has to wait for it


def processes(zombies=False):
    """PID and name of every running process of this sandbox; with `zombies` the ended ones too,
    and the state in place of the name."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as file:
                    text = file.read()
            except OSError:
                continue
            before, _, after = text.rpartition(")")
            state = after.split()[0]
            if zombies:
                found.append((int(name), state))
            elif state != "Z":
                found.append((int(name), before.partition("(")[2]))
    return found


def words(names):
    """List of up to five names, and how many more there are."""
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else "%s and %d more" % (shown, len(names) - 5)


def ended_words(status):
    if status is None:
        return "it was ended"
    code = os.waitstatus_to_exitcode(status)
    return "exit %d" % code if code >= 0 else signal.Signals(-code).name
