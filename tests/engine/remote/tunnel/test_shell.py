"""Shell commands on a server: survey, errors, uploads, engine switching."""

import asyncio
import hashlib
import os
import re
from pathlib import Path

import pytest

from engine.protocol.problems import LaunchError, Refused
from engine.remote.install.install import MARK, OURS, SWITCH, remove_all, roll_back
from engine.remote.install.survey import refuse_unfit, survey
from engine.remote.install.uploads import upload_file
from engine.remote.ssh.base import Done
from engine.remote.tunnel.shell import Shell
from tests.engine.remote.this_machine import LocalConnection

CARDS = """#!/bin/sh
echo 'NVIDIA H200, 143771, {driver}'
echo 'NVIDIA H200, 143771, {driver}'
"""


def shell_in(folder: Path) -> Shell:
    shell = Shell(LocalConnection(folder), "")
    asyncio.run(shell.find_base(""))
    return shell


def with_cards(folder: Path, driver: str) -> Shell:
    programs = folder / "programs"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(CARDS.format(driver=driver))
    (programs / "nvidia-smi").chmod(0o755)
    machine = LocalConnection(folder, f"{programs}:{os.environ['PATH']}")
    shell = Shell(machine, "")
    asyncio.run(shell.find_base(""))
    return shell


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("", "{home}/.atelier-engine"),
        ("~/work/a b", "{home}/work/a b"),
        ("/scratch/$USER; rm -rf /", "/scratch/$USER; rm -rf "),
        ("relative", "{home}/relative"),
    ],
)
def test_base_folder_is_taken_literally(tmp_path: Path, folder: str, expected: str) -> None:
    shell = Shell(LocalConnection(tmp_path), "")
    assert asyncio.run(shell.find_base(folder)) == expected.format(home=tmp_path)


def test_output_of_the_login_shell_is_ignored(tmp_path: Path) -> None:
    class NoisyShell(LocalConnection):
        async def run(self, command: str, *more: object) -> Done:
            done = await super().run(command)
            return Done(done.code, b"Welcome!\nos=Windows\n" + done.out, done.err)

    shell = Shell(NoisyShell(tmp_path), str(tmp_path))
    assert asyncio.run(shell.run('echo "$words"', words="it's $HOME")) == "it's $HOME\n"


def test_survey_reports_the_machine_and_writes_nothing(tmp_path: Path) -> None:
    report = asyncio.run(survey(shell_in(tmp_path)))
    assert (report.os, report.engine) == ("Linux", "engine-cpu")
    assert report.cores == os.cpu_count()
    assert report.free_bytes > 0
    assert report.python.split(" ")[0] in ("3.11", "3.12", "3.13", "")
    assert {check.name for check in report.checks} >= {"System", "Python", "GPU", "Disk"}
    assert not list(tmp_path.iterdir())


def test_gpus_select_the_gpu_engine(tmp_path: Path) -> None:
    report = asyncio.run(survey(with_cards(tmp_path, "590.48.01")))
    assert report.engine == "engine-gpu"
    assert [card.name for card in report.cards] == ["NVIDIA H200", "NVIDIA H200"]
    assert report.cards[0].memory_bytes == 143771 * 2**20


def test_old_driver_is_rejected_before_installation(tmp_path: Path) -> None:
    report = asyncio.run(survey(with_cards(tmp_path, "535.10")))
    with pytest.raises(LaunchError, match=r"driver 535\.10") as error:
        refuse_unfit(report)
    assert "update the driver, or train on the CPU" in error.value.problem.hint
    other = tmp_path / "other"
    other.mkdir()
    refuse_unfit(asyncio.run(survey(with_cards(other, "535.10"), "engine-cpu")))


def test_full_disk_is_rejected_before_installation(tmp_path: Path) -> None:
    class FullDisk(LocalConnection):
        async def run(self, command: str, *more: object) -> Done:
            done = await super().run(command)
            out = re.sub(rb"free_kb=\d+", b"free_kb=1000000", done.out)
            return Done(done.code, out, done.err)

    shell = Shell(FullDisk(tmp_path), str(tmp_path / "ours"))
    with pytest.raises(LaunchError, match=r"1.0 GB free") as error:
        refuse_unfit(asyncio.run(survey(shell)))
    assert "free some space" in error.value.problem.hint


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("cat: write error: No space left on device", "host.disk_full"),
        ("mkdir: cannot create directory: Permission denied", "host.not_writable"),
        ("sh: tar: not found", "host.command_failed"),
    ],
)
def test_shell_errors_become_coded_problems(tmp_path: Path, message: str, code: str) -> None:
    with pytest.raises(LaunchError) as error:
        asyncio.run(shell_in(tmp_path).run(f"echo '{message}' >&2; exit 3", what="unpack"))
    assert error.value.problem.code == code
    assert "me@here:22" in error.value.problem.message


def test_interrupted_upload_resumes(tmp_path: Path) -> None:
    """A partial file with damaged content is uploaded again."""
    shell, source = shell_in(tmp_path), tmp_path / "source"
    source.write_bytes(os.urandom(1_000_000))
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    target = tmp_path / "there" / "file"
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(source.read_bytes()[:400_000])
    sent_bytes: list[int] = []
    asyncio.run(upload_file(shell, source, str(target), digest, sent_bytes.append))
    assert target.read_bytes() == source.read_bytes()
    assert sent_bytes[0] == 400_000
    assert sum(sent_bytes) == 1_000_000

    target.unlink()
    target.with_name("file.part").write_bytes(b"x" * 400_000)
    asyncio.run(upload_file(shell, source, str(target), digest, sent_bytes.append))
    assert target.read_bytes() == source.read_bytes()


def test_remove_all_deletes_only_our_folder(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    base = Path(shell.base)
    base.mkdir()
    (base / "thesis.tex").touch()
    with pytest.raises(LaunchError, match="exit 76"):
        asyncio.run(shell.run(OURS, mark=MARK))
    with pytest.raises(Refused, match="nothing was deleted"):
        asyncio.run(remove_all(shell))
    assert (base / "thesis.tex").exists()
    (base / "thesis.tex").unlink()
    asyncio.run(shell.run(OURS, mark=MARK))
    asyncio.run(remove_all(shell))
    assert not base.exists()


def test_engines_are_switched_and_rolled_back(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    base = Path(shell.base)
    for name in ("one", "two"):
        (base / "engines" / name).mkdir(parents=True)
        asyncio.run(shell.run(SWITCH, id=name))
    assert os.readlink(base / "current") == "engines/two"
    assert asyncio.run(roll_back(shell)) == "one"
    assert os.readlink(base / "current") == "engines/one"
    assert os.readlink(base / "previous") == "engines/two"
