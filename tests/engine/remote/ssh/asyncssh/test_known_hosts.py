"""Parsing of known_hosts and appending to it."""

import multiprocessing
import subprocess
from pathlib import Path

import asyncssh
import pytest

from engine.protocol.problems import LaunchError
from engine.remote.ssh.asyncssh.known_hosts import append_key, names_host, read_entries


@pytest.mark.parametrize(
    ("names", "host", "expected"),
    [
        ("gpu1", "gpu1", True),
        ("GPU1,10.0.0.1", "gpu1", True),
        ("gpu1", "gpu10", False),
        ("gpu?", "gpu1", True),
        ("*.example.org", "a.b.example.org", True),
        ("*.example.org,!b.example.org", "b.example.org", False),
        ("!b.example.org,*.example.org", "b.example.org", False),
        ("!gpu1", "gpu2", False),
        ("[gpu1]:2222", "[gpu1]:2222", True),
        ("[gpu1]:2222", "gpu1", False),
        ("[*]:2222", "[gpu1]:2222", True),
        ("|1|no base64|x", "gpu1", False),
        ("|2|AAAA|AAAA", "gpu1", False),
    ],
)
def test_names_host_matches_patterns_negations_and_ports(
    names: str, host: str, expected: bool
) -> None:
    assert names_host(names, host) is expected


def test_hashed_names_match_openssh(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519").convert_to_public()
    file = tmp_path / "hosts"
    for host in ("gpu1", "[gpu1]:2222"):
        append_key(file, host, key, hashed=True)
        command = ["ssh-keygen", "-F", host, "-f", str(file)]
        assert subprocess.run(command, capture_output=True).returncode == 0
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    names = [entry.names for entry in read_entries([file])]
    assert [names_host(one, "[gpu1]:2222") for one in names] == [False, True]


def test_unreadable_lines_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("\n# a\nx\n@strange a ssh-ed25519 AAAA\na ssh-unheard AAAA\n\x00\xff\n")
    append_key(file, "gpu1", asyncssh.generate_private_key("ssh-ed25519"), hashed=False)
    (entry,) = read_entries([tmp_path / "none", file])
    assert (entry.names, entry.where) == ("gpu1", f"{file}:7")
    assert "PRIVATE" not in file.read_text()


def test_unusable_file_raises_launch_error(tmp_path: Path) -> None:
    for action in (
        lambda: read_entries([tmp_path]),
        lambda: append_key(tmp_path, "a", asyncssh.generate_private_key("ssh-ed25519"), False),
    ):
        with pytest.raises(LaunchError) as raised:
            action()
        assert raised.value.problem.code == "ssh.known_hosts_unusable"


def _append_many(file: Path, name: str) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519").convert_to_public()
    for number in range(40):
        append_key(file, f"{name}{number}", key, hashed=False)


def test_concurrent_appends_keep_every_entry(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_append_many, args=(file, name)) for name in ("a", "b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(read_entries([file])) == 80
