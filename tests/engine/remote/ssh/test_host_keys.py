"""Host keys: what is known goes on in silence, what is not is asked, and what changed stops.

In every case that ends before a connection, nobody may have tried to authenticate.
"""

import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.remote.ssh.problems import may_pass
from tests.engine.remote.ssh.person import Desk, Scripted
from tests.support.ssh_server import FarSide, Keys


@pytest.fixture
def known(at_home: Desk) -> Path:
    return at_home.known_hosts


def fingerprint(keys: Keys, name: str) -> str:
    said = subprocess.run(
        ["ssh-keygen", "-lf", f"{keys.path(name)}.pub"], capture_output=True, text=True, check=True
    )
    return said.stdout.split()[1]


def record(keys: Keys, name: str, host: str, marker: str = "") -> str:
    kind, data, *_ = keys.public(name).split()
    return f"{marker} {host} {kind} {data}\n".lstrip()


def sign_host(keys: Keys, principals: str, *options: str) -> None:
    """Gives the host key `certified` a certificate of the authority `ca`."""
    keys.path("ca")
    keys.path("certified")
    command = ["ssh-keygen", "-q", "-s", "ca", "-I", "a host", "-h", "-n", principals, *options]
    subprocess.run([*command, "certified.pub"], cwd=keys.folder, check=True, capture_output=True)


@pytest.fixture
def second_kind(ssh_keys: Keys) -> str:
    ssh_keys.path("ecdsa", "ecdsa-sha2-nistp256")
    return "ecdsa"


def test_a_key_on_record_is_accepted_in_silence(at_home: Desk, far: FarSide) -> None:
    person = Scripted()
    assert at_home.say(far.address, person=person) == "hello\n"
    assert person.asked == []


def test_an_unknown_key_is_shown_confirmed_and_kept(
    at_home: Desk, known: Path, far: FarSide, ssh_keys: Keys
) -> None:
    known.unlink()
    person = Scripted({"host_key": ["yes"]})
    assert at_home.say(far.address, person=person) == "hello\n"
    (question,) = person.asked
    assert question.detail == f"ED25519 {fingerprint(ssh_keys, 'host')}"
    assert question.host == far.address
    assert known.read_text() == far.known()
    assert stat.S_IMODE(known.stat().st_mode) == 0o600
    assert at_home.say(far.address) == "hello\n"


@pytest.mark.parametrize("answer", [None, "no", ""])
def test_an_unconfirmed_key_is_not_gone_near(
    at_home: Desk, known: Path, far: FarSide, answer: str | None
) -> None:
    known.write_text("# empty")
    problem = at_home.problem(far.address, Scripted({"host_key": [answer]}))
    assert problem.code == "ssh.host_key_refused"
    assert not may_pass(problem)
    assert known.read_text() == "# empty"
    assert far.attempts == []


def test_a_new_line_is_appended_hashed_where_that_is_the_custom(
    at_home: Desk, known: Path, far: FarSide, ssh_keys: Keys
) -> None:
    at_home.configure("HashKnownHosts yes", f"IdentityFile {ssh_keys.path('user')}")
    known.write_text("elsewhere ssh-ed25519 AAAA" + "\n" * (at_home.transport == "system"))
    at_home.say(far.address, person=Scripted({"host_key": ["yes"]}))
    old, new = known.read_text().splitlines()
    assert old == "elsewhere ssh-ed25519 AAAA"
    assert new.startswith("|1|")
    assert at_home.say(far.address) == "hello\n"
    found = subprocess.run(
        ["ssh-keygen", "-F", far.name, "-f", str(known)], capture_output=True, text=True
    )
    assert "found: line 2" in found.stdout


def test_nobody_is_asked_where_the_configuration_says_so(
    at_home: Desk, known: Path, far: FarSide
) -> None:
    known.write_text("")
    at_home.configure("StrictHostKeyChecking yes")
    assert at_home.problem(far.address).code == "ssh.host_key_unknown"
    assert far.attempts == []


@pytest.mark.parametrize("silent", ["no", "accept-new"])
def test_nothing_is_silently_accepted(
    at_home: Desk, known: Path, far: FarSide, silent: str
) -> None:
    known.write_text("")
    at_home.configure(f"StrictHostKeyChecking {silent}")
    assert at_home.problem(far.address, Scripted({"host_key": ["no"]})).code == (
        "ssh.host_key_refused"
    )


@pytest.mark.parametrize("hashed", [False, True])
def test_a_changed_key_is_a_hard_stop(
    at_home: Desk, known: Path, far: FarSide, ssh_keys: Keys, hashed: bool
) -> None:
    known.write_text("# first\n" + record(ssh_keys, "other", far.name))
    if hashed:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], capture_output=True)
    problem = at_home.problem(far.address)
    assert problem.code == "ssh.host_key_changed"
    assert problem.where == f"{known}:2"
    assert f"ssh-keygen -R '{far.name}' -f {known}" in problem.hint
    assert fingerprint(ssh_keys, "host") in problem.message
    assert not may_pass(problem)
    assert far.attempts == []


def test_another_kind_instead_of_the_known_one_is_a_change(
    at_home: Desk, known: Path, far: FarSide, second_kind: str, ssh_keys: Keys
) -> None:
    known.write_text(record(ssh_keys, second_kind, far.name))
    problem = at_home.problem(far.address)
    assert problem.code == "ssh.host_key_changed"
    assert problem.where == f"{known}:1"
    assert far.attempts == []


def test_another_kind_beside_the_known_one_is_no_matter(
    at_home: Desk, far: FarSide, second_kind: str, ssh_keys: Keys
) -> None:
    ssh_keys.path("rsa", "ssh-rsa")
    for known, *others in (["host", "ecdsa", "rsa"], ["rsa", "host"], ["ecdsa", "host"]):
        far.restart(*others, known)
        at_home.known_hosts.write_text(record(ssh_keys, known, far.name))
        assert at_home.say(far.address) == "hello\n"


def test_a_revoked_key_is_a_hard_stop(
    at_home: Desk, known: Path, far: FarSide, ssh_keys: Keys
) -> None:
    known.write_text(far.known() + record(ssh_keys, "host", far.name, "@revoked"))
    problem = at_home.problem(far.address)
    assert problem.code == "ssh.host_key_revoked"
    assert not may_pass(problem)
    assert far.attempts == []


def test_an_entry_without_the_port_counts(at_home: Desk, far: FarSide, ssh_keys: Keys) -> None:
    at_home.known_hosts.write_text(record(ssh_keys, "host", "127.0.0.1"))
    assert at_home.say(far.address) == "hello\n"
    at_home.known_hosts.write_text(record(ssh_keys, "other", "127.0.0.1"))
    person = Scripted({"host_key": ["no"]})
    assert at_home.problem(far.address, person).code == "ssh.host_key_refused"


def test_patterns_and_several_files(at_home: Desk, far: FarSide, ssh_keys: Keys) -> None:
    first, second = at_home.folder / "first", at_home.folder / "second"
    first.write_text(record(ssh_keys, "other", f"!{far.name},[127.*]:*"))
    second.write_text("nonsense\n@odd x\n" + record(ssh_keys, "host", f"x,[127.0.0.?]:{far.port}"))
    at_home.configure(
        f"UserKnownHostsFile {first} {second}", f"IdentityFile {ssh_keys.path('user')}"
    )
    assert at_home.say(far.address) == "hello\n"


def test_a_key_under_an_alias(at_home: Desk, far: FarSide, ssh_keys: Keys) -> None:
    at_home.configure("HostKeyAlias cluster", f"IdentityFile {ssh_keys.path('user')}")
    at_home.known_hosts.write_text(record(ssh_keys, "other", far.name))
    at_home.say(far.address, person=Scripted({"host_key": ["yes"]}))
    assert at_home.known_hosts.read_text().splitlines()[1].startswith("cluster ssh-ed25519")
    assert at_home.say(far.address) == "hello\n"


@pytest.fixture
def certified(far: FarSide, ssh_keys: Keys) -> Iterator[FarSide]:
    sign_host(ssh_keys, "127.0.0.1")
    far.restart("certified")
    yield far
    (ssh_keys.folder / "certified-cert.pub").unlink()


def test_a_key_signed_by_a_known_authority(
    at_home: Desk, known: Path, certified: FarSide, ssh_keys: Keys
) -> None:
    known.write_text(record(ssh_keys, "ca", "[127.0.0.1]:*", "@cert-authority"))
    assert at_home.say(certified.address) == "hello\n"


def test_a_key_signed_by_somebody_else_is_just_a_key(
    at_home: Desk, known: Path, certified: FarSide, ssh_keys: Keys
) -> None:
    known.write_text(record(ssh_keys, "other", "*", "@cert-authority"))
    person = Scripted({"host_key": ["no"]})
    assert at_home.problem(certified.address, person).code == "ssh.host_key_refused"
    assert person.asked[0].detail == f"ED25519 {fingerprint(ssh_keys, 'certified')}"
    assert certified.attempts == []


def test_a_plain_key_where_an_authority_is_known(
    at_home: Desk, known: Path, far: FarSide, ssh_keys: Keys
) -> None:
    known.write_text(record(ssh_keys, "other", "*", "@cert-authority"))
    person = Scripted({"host_key": ["yes"]})
    assert at_home.say(far.address, person=person) == "hello\n"
    assert at_home.say(far.address) == "hello\n"


def test_a_certificate_of_a_revoked_authority(
    at_home: Desk, known: Path, certified: FarSide, ssh_keys: Keys
) -> None:
    lines = [record(ssh_keys, "ca", "*", marker) for marker in ("@cert-authority", "@revoked")]
    known.write_text("".join(lines))
    assert at_home.problem(certified.address).code == "ssh.host_key_revoked"
    assert certified.attempts == []


@pytest.mark.parametrize("transport", ["asyncssh"], indirect=True)
def test_a_certificate_that_does_not_hold(
    at_home: Desk, known: Path, far: FarSide, ssh_keys: Keys
) -> None:
    known.write_text(record(ssh_keys, "ca", "*", "@cert-authority"))
    for principals, options, why in (
        ("elsewhere", [], "principal mismatch"),
        ("127.0.0.1", ["-V", "20200101:20200102"], "expired"),
    ):
        sign_host(ssh_keys, principals, *options)
        far.restart("certified")
        problem = at_home.problem(far.address)
        assert problem.code == "ssh.host_certificate"
        assert why in problem.message
    assert far.attempts == []
    (ssh_keys.folder / "certified-cert.pub").unlink()


@pytest.mark.parametrize("transport", ["asyncssh"], indirect=True)
def test_where_no_file_is_kept_a_key_is_asked_for_each_time(
    at_home: Desk, far: FarSide, ssh_keys: Keys
) -> None:
    at_home.configure("UserKnownHostsFile /dev/null", f"IdentityFile {ssh_keys.path('user')}")
    for _ in range(2):
        assert at_home.say(far.address, person=Scripted({"host_key": ["yes"]})) == "hello\n"


@pytest.mark.parametrize("transport", ["asyncssh"], indirect=True)
def test_what_only_ssh_can_honour_is_left_to_it(at_home: Desk, far: FarSide) -> None:
    at_home.configure("RevokedHostKeys /some/list")
    problem = at_home.problem(far.address)
    assert problem.code == "ssh.needs_system"
    assert "RevokedHostKeys" in problem.message
