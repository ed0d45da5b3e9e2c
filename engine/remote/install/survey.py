"""Survey of a server over its shell (OS, GPU, disk, Python); read-only."""

from engine.hardware.doctor import DRIVER_FLOOR
from engine.protocol.problems import LaunchError, Problem
from engine.protocol.records.machine.hardware import Check
from engine.protocol.requests.remote import FarCard, FarEngine, HostReport
from engine.remote.tunnel.shell import Shell

PYTHONS = ("3.11", "3.12", "3.13")
OLDEST_LIBC = (2, 28)
"""Oldest glibc version that torch wheels support."""
NETWORKED = {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb2", "afs", "fuseblk"}
NEED = {"engine-cpu": (260e6, 1.0e9), "engine-gpu": (4.2e9, 9.5e9)}
"""(bytes to upload, bytes needed on the server's disk) by kind of engine."""
RESERVE = 2e9
TOOLS = ("tar", "gzip", "sha256sum", "flock", "awk")

SCRIPT = r"""
exec 2>/dev/null
say() { printf '%s=%s\n' "$1" "$2"; }
say os "$(uname -s)"; say machine "$(uname -m)"; say host "$(uname -n)"; say user "$(id -un)"
say libc "$(getconf GNU_LIBC_VERSION | awk '{print $2}')"
say cores "$(getconf _NPROCESSORS_ONLN)"
say memory_kb "$(awk '/^MemTotal/ {print $2}' /proc/meminfo)"
parent=$base
while [ ! -d "$parent" ]; do parent=$(dirname "$parent"); done
say free_kb "$(df -Pk "$parent" | awk 'END {print $4}')"
say filesystem "$(stat -f -c %T "$parent")"
probe="$parent/.atelier-probe-$$"
printf '#!/bin/sh\nexit 0\n' > "$probe" && chmod 700 "$probe" && say writable yes
"$probe" && say executable yes
rm -f "$probe"
for name in python3.11 python3.12 python3.13 python3; do
    command -v $name >/dev/null && say python "$($name -c '
import sys
print("%d.%d %s" % (sys.version_info[0], sys.version_info[1], sys.executable))')"
done
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader,nounits |
    while read -r line; do say card "$line"; done
for tool in tar gzip sha256sum flock awk; do command -v $tool >/dev/null && say tool $tool; done
for ready in "$base"/engines/*/ready; do
    [ -f "$ready" ] && say engine "$(basename "$(dirname "$ready")")"
done
say current "$(basename "$(readlink "$base/current")")"
say previous "$(basename "$(readlink "$base/previous")")"
say linger "$(loginctl show-user "$(id -un)" -p Linger --value)"
say kills "$(grep -hi '^ *KillUserProcesses *= *yes' /etc/systemd/logind.conf | head -n 1)"
exit 0
"""


async def survey(shell: Shell, kind: str = "auto") -> HostReport:
    """Survey a server's OS, GPU, disk and Python without changing it. `kind` is the requested
    engine (`engine-gpu`, `engine-cpu`), or `auto`."""
    facts = read(await shell.run(SCRIPT, what="run the system check"))
    cards = [card for text in facts["card"] if (card := _card(text))]
    libc = _first(facts, "libc")
    wanted = kind if kind != "auto" else _fitting(cards, _first(facts, "machine"))
    download, installed = NEED[wanted]
    report = HostReport(
        server=shell.connection.server,
        folder=shell.base,
        os=_first(facts, "os"),
        machine=_first(facts, "machine"),
        host=_first(facts, "host"),
        libc=libc,
        cores=int(_first(facts, "cores") or 0),
        memory_bytes=int(_first(facts, "memory_kb") or 0) * 1024,
        free_bytes=int(_first(facts, "free_kb") or 0) * 1024,
        filesystem=_first(facts, "filesystem"),
        shared=_first(facts, "filesystem") in NETWORKED,
        cards=cards,
        python=_python(facts["python"]),
        engine=wanted,  # type: ignore[arg-type]
        download_bytes=int(download),
        installed_bytes=int(installed),
        engines=_engines(facts),
    )
    return report.model_copy(update={"checks": _checks(report, facts)})


def read(text: str) -> dict[str, list[str]]:
    """Parse lines of the form `key=value`; returns the list of all values of each key."""
    found: dict[str, list[str]] = {"card": [], "python": [], "tool": [], "engine": []}
    for line in text.splitlines():
        key, split, value = line.partition("=")
        if split and value.strip():
            found.setdefault(key, []).append(value.strip())
    return found


def refuse_unfit(report: HostReport) -> None:
    """Raise LaunchError with the first failed check if the server cannot run an engine."""
    for check in report.checks:
        if check.state == "bad":
            raise LaunchError(
                Problem(
                    code="host.unfit",
                    message=f"{report.server}: {check.words}",
                    hint=check.hint,
                    where=check.name,
                )
            )


def _checks(report: HostReport, facts: dict[str, list[str]]) -> list[Check]:
    return [
        _system(report),
        _check_python(report),
        _graphics(report),
        _disk(report, facts),
        *_folder(report),
        *_leaving(facts),
        *_tools(facts),
    ]


def _system(report: HostReport) -> Check:
    words = f"{report.os} on {report.machine}, glibc {report.libc or 'none'}"
    hint = "An engine needs Linux on x86_64 or aarch64 with glibc 2.28 or newer."
    number = tuple(int(part) for part in report.libc.split(".")[:2]) if report.libc else (0, 0)
    fit = report.os == "Linux" and report.machine in ("x86_64", "aarch64") and number >= OLDEST_LIBC
    return Check(
        name="System", state="good" if fit else "bad", words=words, hint="" if fit else hint
    )


def _check_python(report: HostReport) -> Check:
    if report.python:
        version, _, path = report.python.partition(" ")
        return Check(name="Python", state="good", words=f"{version} ({path})")
    return Check(
        name="Python",
        state="warn",
        words="No Python 3.11, 3.12 or 3.13.",
        hint="uv downloads one if the server reaches the internet; otherwise install one.",
    )


def _graphics(report: HostReport) -> Check:
    if not report.cards:
        words = "No NVIDIA GPU: training uses the CPU."
        if report.engine == "engine-gpu":
            hint = "Install the CPU engine."
            return Check(name="GPU", state="bad", words="No NVIDIA GPU.", hint=hint)
        return Check(name="GPU", state="warn", words=words)
    first = report.cards[0]
    words = ", ".join(f"{one.name} ({one.memory_bytes / 2**30:.0f} GiB)" for one in report.cards)
    words += f", driver {first.driver}"
    major = int(first.driver.split(".")[0]) if first.driver.split(".")[0].isdecimal() else 0
    if report.engine == "engine-gpu" and major < DRIVER_FLOOR:
        hint = (
            f"CUDA 13 needs driver {DRIVER_FLOOR} or newer: update the driver, or train on the CPU."
        )
        return Check(name="GPU", state="bad", words=words, hint=hint)
    return Check(name="GPU", state="good", words=words)


def _disk(report: HostReport, facts: dict[str, list[str]]) -> Check:
    words = f"{report.free_bytes / 1e9:.1f} GB free in {report.folder}"
    if not facts.get("writable"):
        hint = "Use a folder that belongs to you."
        return Check(name="Disk", state="bad", words=f"{report.folder} is not writable.", hint=hint)
    if not facts.get("executable"):
        hint = "The file system is mounted noexec: use another folder."
        return Check(
            name="Disk", state="bad", words=f"Programs cannot run in {report.folder}.", hint=hint
        )
    need = 0 if any(one.current for one in report.engines) else report.installed_bytes + RESERVE
    if report.free_bytes < need:
        hint = f"The engine needs {need / 1e9:.1f} GB: free some space, or use another folder."
        return Check(name="Disk", state="bad", words=words, hint=hint)
    return Check(name="Disk", state="good", words=words)


def _folder(report: HostReport) -> list[Check]:
    if not report.shared:
        return []
    words = f"{report.folder} is on {report.filesystem}, which other machines may share."
    hint = "Only one engine at a time can use this folder; a local disk is also faster."
    return [Check(name="Folder", state="warn", words=words, hint=hint)]


def _leaving(facts: dict[str, list[str]]) -> list[Check]:
    if not facts.get("kills") or _first(facts, "linger") == "yes":
        return []
    words = "This server ends your processes when you log out."
    hint = "Run `loginctl enable-linger` there once; otherwise runs end when you disconnect."
    return [Check(name="Logout", state="warn", words=words, hint=hint)]


def _tools(facts: dict[str, list[str]]) -> list[Check]:
    missing = [tool for tool in TOOLS if tool not in facts["tool"]]
    if not missing:
        return []
    hint = "Install these with the server's package manager."
    words = f"The server has no {', '.join(missing)}."
    return [Check(name="Tools", state="bad", words=words, hint=hint)]


def _fitting(cards: list[FarCard], machine: str) -> str:
    return "engine-gpu" if cards and machine == "x86_64" else "engine-cpu"


def _python(found: list[str]) -> str:
    """Preferred supported Python as "3.11 /usr/bin/python3.11"; empty if none is supported."""
    for wanted in PYTHONS:
        for one in found:
            if one.split(" ")[0] == wanted:
                return one
    return ""


def _card(text: str) -> FarCard | None:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3 or not parts[1].isdecimal():
        return None
    return FarCard(name=parts[0], memory_bytes=int(parts[1]) * 2**20, driver=parts[2])


def _engines(facts: dict[str, list[str]]) -> list[FarEngine]:
    current, previous = _first(facts, "current"), _first(facts, "previous")
    return [
        FarEngine(id=one, current=one == current, previous=one == previous)
        for one in sorted(facts["engine"])
    ]


def _first(facts: dict[str, list[str]], key: str) -> str:
    return facts.get(key, [""])[0]
