"""Quoting of command lines for every login shell."""

import os
import shutil
import subprocess

import pytest

from engine.remote.ssh.commands import PROCESS, by_sh

ODD = """it's a "test" with $HOME, `ls`, \\n \\0101 \\\\ , 100 %, !bang, !!, ünï, ~ # and
a line break	tab; (x) {y} [z] <a> & ^ * ?"""
SHELLS = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "tcsh", "csh", "fish"]


@pytest.mark.parametrize("announce", [False, True])
@pytest.mark.parametrize("shell", SHELLS)
def test_command_passes_every_login_shell_unchanged(shell: str, announce: bool) -> None:
    """Also tested by hand with tcsh 6.24, fish 3.6, zsh 5.9 and mksh R59c."""
    program = shutil.which(shell)
    if not program:
        pytest.skip(f"no {shell} here")
    line = by_sh(f"cat <<'EOF'\n{ODD}\nEOF\nexit 7", announce)
    done = subprocess.run([program, "-c", line], capture_output=True)
    assert (done.returncode, done.stdout.decode()) == (7, ODD + "\n")
    assert PROCESS.sub(b"", done.stderr) == b""
    assert bool(done.stderr) is announce


def test_announced_pid_is_that_of_the_process_group() -> None:
    line = by_sh("echo $PPID", announce=True)
    process = subprocess.Popen(
        ["/bin/sh", "-c", line],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    out, err = process.communicate()
    match_ = PROCESS.search(err)
    assert match_
    assert int(match_[1]) == int(out) == process.pid
    assert os.getpid() != process.pid


def test_simple_command_stays_readable() -> None:
    assert by_sh("uname -sm") == "exec /bin/sh -c 'uname -sm'"
