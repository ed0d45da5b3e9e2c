"""Guardians, environment variables and logs of child processes."""

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from engine.runtime import variables
from engine.runtime.child import Child, ChildDied
from engine.runtime.files import shorten
from engine.runtime.variables import allowed_environment, without_secrets

ROOT = Path(__file__).parents[3]
LIFE = ROOT / "engine" / "runtime" / "life_pipe.py"
DAEMON = (
    "import os, sys, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        os.execvp('sleep', ['sleep', sys.argv[1]])\n"
    "    os._exit(0)\n"
    "os.wait()\n"
    "print('ready', flush=True)\n"
)
SECRETS = {
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "NVIDIA_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
    "HF_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "WANDB_API_KEY",
    "DB_PASSWORD", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "CUDA_SECRET",
}  # fmt: skip


def sleep_processes(seconds: str) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["cmdline"] == ["sleep", seconds]:
            processes.append(process)
    return processes


def until_none(seconds: str, timeout_s: float = 5) -> float:
    start = time.monotonic()
    while sleep_processes(seconds):
        assert time.monotonic() - start < timeout_s, "the daemon should have ended"
        time.sleep(0.02)
    return time.monotonic() - start


@pytest.mark.parametrize("end", ["life", "exit", "kill"])
def test_guardian_ends_daemons(end: str) -> None:
    """A daemon (two forks, own session) ends with the life pipe and with the program."""
    seconds = {"life": "98761", "exit": "98762", "kill": "98763"}[end]
    ends = {"life": "time.sleep(60)", "exit": "sys.exit(7)", "kill": "os.kill(os.getpid(), 9)"}
    read, write = os.pipe()
    command = [
        sys.executable,
        str(LIFE),
        str(read),
        sys.executable,
        "-c",
        DAEMON + ends[end],
        seconds,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[read])
    os.close(read)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
    if end == "life":
        while not sleep_processes(seconds):  # the daemon may still be starting
            time.sleep(0.01)
        os.close(write)
    elapsed_s = until_none(seconds)
    assert process.wait(5) == {"life": 0, "exit": 7, "kill": -9}[end]
    print(f"{end}: the daemon was gone after {elapsed_s:.2f} s")
    if end != "life":
        os.close(write)


def test_environment_variables_are_allow_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("HF_HOME", "/models")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:token@index")
    assert not SECRETS & allowed_environment().keys()
    assert allowed_environment()["HF_HOME"] == "/models"
    assert allowed_environment({"OPENAI_API_KEY": "of the gateway"})["OPENAI_API_KEY"]
    filtered = without_secrets()
    assert not (SECRETS - {"XDG_RUNTIME_DIR", "SSH_AUTH_SOCK"}) & filtered.keys()
    assert filtered["PIP_INDEX_URL"] == "https://user:token@index"


def test_bootstrap_uses_the_same_secret_pattern() -> None:
    source = (ROOT / "packaging" / "variables.py").read_text()
    (pattern,) = re.findall(r're\.compile\(r"(.*)", re\.I\)', source)
    assert pattern == variables.SECRET.pattern


def test_shortened_log_keeps_its_end(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    with log.open("ab") as writer:
        writer.write(b"first\n" + b"x" * 5_000_000 + b"\nlast\n")
        writer.flush()
        assert shorten(log, 2**20, 1000)
        writer.write(b"after\n")
    text = log.read_text()
    assert text.startswith("[5 MB of earlier output removed]\n")
    assert text.endswith("\nlast\nafter\n")
    assert len(text) < 1100
    assert not shorten(log, 2**20, 1000)
    assert not shorten(tmp_path / "none")


def test_endless_output_of_a_child_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.runtime.files.shorten.__defaults__", (2**22, 2**16))
    code = "import os, time\nwhile True: os.write(1, b'x' * 65536); time.sleep(0.001)"
    log = tmp_path / "run.log"

    async def largest_log() -> int:
        child = await Child.spawn("agent", [sys.executable, "-c", code], cwd=tmp_path, log=log)
        sizes = []
        for _ in range(30):
            await asyncio.sleep(0.1)
            sizes.append(log.stat().st_size)
        await child.kill()
        assert sorted(sizes) != sizes, "the log should have been shortened"
        return max(sizes)

    print(f"{asyncio.run(largest_log()) / 2**20:.0f} MB at most")


@pytest.mark.parametrize(
    "line",
    [b"5\n", b"[]\n", b"{}\n", b'{"id": true, "ok": {}}\n', b'{"id": 1}\n', b'{"id": 1, "ok": 5}\n',
     b'{"id": 1, "error": {}}\n', b"[" * 100_000 + b"\n", b"\xff\n", b"x" * 3_000_000],
)  # fmt: skip
def test_invalid_line_ends_the_child_with_a_reason(tmp_path: Path, line: bytes) -> None:
    code = (
        "import os, sys, time\nfd = int(sys.argv[1])\nos.read(fd, 100)\n"
        f"data = {line[:20]!r} * {len(line) // len(line[:20])} + {line[-1:]!r}\n"
        "while data: data = data[os.write(fd, data):]\ntime.sleep(60)"
    )

    async def run_child() -> None:
        log = tmp_path / "log"
        argv = [sys.executable, "-c", code]
        child = await Child.spawn("agent", argv, cwd=tmp_path, log=log, line_limit=2**20)
        try:
            async with asyncio.timeout(20):
                await child.ask("run")
        finally:
            await child.close()

    with pytest.raises(ChildDied, match="unreadable"):
        asyncio.run(run_child())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two other users")
def test_hidden_process_is_unreadable_for_other_processes() -> None:
    """Both processes run as non-root, since root may read everything."""
    source = (
        ROOT / "engine/runtime/life_pipe.py"
    ).read_text()  # as text: its folder may be private
    hiding_program = (
        f"life_pipe = {{'__name__': 'life_pipe'}}; exec({source!r}, life_pipe)\n"
        "import os, sys\n"
        "if sys.argv[1] == 'hide': life_pipe['hide_from_peers']()\n"
        "assert os.listdir('/proc/self/fd')\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    reading_program = (
        "import sys\n"
        "for name in ('environ', 'maps', 'mem'):\n"
        "    try: open(f'/proc/{sys.argv[1]}/{name}', 'rb').close(); print('read', end=' ')\n"
        "    except PermissionError: print('refused', end=' ')"
    )
    for mode, word in (("hide", "refused"), ("stay", "read")):
        with subprocess.Popen(
            ["/usr/bin/python3", "-c", hiding_program, mode],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=65534, group=65534,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            results = subprocess.run(
                ["/usr/bin/python3", "-c", reading_program, str(process.pid)],
                capture_output=True, text=True, user=65534, group=65534,
            ).stdout.split()  # fmt: skip
        assert results == [word] * 3, (mode, results)
