"""Getting in: keys, passphrases, agents, certificates, passwords and codes; and why it fails."""

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import asyncssh
import psutil
import pytest

from engine.protocol.problems import LaunchError
from engine.remote.ssh import base
from engine.remote.ssh.problems import may_pass
from tests.engine.remote.ssh.person import Desk, Scripted
from tests.support.ssh_server import FarSide, Keys, run_agent

ONLY_OURS = pytest.mark.parametrize("transport", ["asyncssh"], indirect=True)


@pytest.fixture
def desk(desk: Desk, far: FarSide) -> Desk:
    """The server's key is on record, and no key of ours is named."""
    desk.known_hosts.write_text(far.known())
    return desk


@pytest.fixture
def locked(far: FarSide, ssh_keys: Keys) -> Path:
    """A key with the passphrase “open sesame”, which is let in."""
    key = ssh_keys.path("locked", passphrase="open sesame")
    far.authorized.write_text(ssh_keys.public("locked"))
    return key


@pytest.fixture
def agent(tmp_path: Path, ssh_keys: Keys) -> Iterator[Path]:
    """Holds the key `user`."""
    process = run_agent(tmp_path, ssh_keys.path("user"))
    yield tmp_path / "agent"
    process.terminate()
    process.wait()


def test_a_passphrase_is_asked_for_and_three_times_at_most(
    desk: Desk, far: FarSide, locked: Path
) -> None:
    desk.configure(f"IdentityFile {locked}")
    person = Scripted({"passphrase": ["wrong", "open sesame"]})
    assert desk.say(far.address, person=person) == "hello\n"
    assert person.asked[0].host == far.address
    assert str(locked) in person.asked[0].prompt
    assert not person.asked[0].echo
    problem = desk.problem(far.address, Scripted({"passphrase": ["a", "b", "c"]}))
    assert problem.code == "ssh.passphrase_wrong"
    assert not may_pass(problem)
    problem = desk.problem(far.address, Scripted({"passphrase": ["a", None]}))
    assert problem.code == "ssh.passphrase_given_up"
    assert far.logins == 1


def test_no_passphrase_is_asked_for_a_key_that_is_not_wanted(
    desk: Desk, far: FarSide, ssh_keys: Keys
) -> None:
    locked = ssh_keys.path("locked", passphrase="open sesame")
    desk.configure(f"IdentityFile {locked}", f"IdentityFile {ssh_keys.path('user')}")
    person = Scripted()
    assert desk.say(far.address, person=person) == "hello\n"
    assert person.asked == []


@ONLY_OURS
def test_an_old_key_file_without_its_public_half(desk: Desk, far: FarSide) -> None:
    key = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
    file = desk.folder / "old"
    file.write_bytes(key.export_private_key("pkcs8-pem", passphrase="open sesame"))
    file.chmod(0o600)
    far.authorized.write_bytes(key.export_public_key())
    desk.configure(f"IdentityFile {file}")
    person = Scripted({"passphrase": ["wrong", "open sesame"]})
    assert desk.say(far.address, person=person) == "hello\n"


def test_the_agent_holds_the_key(
    desk: Desk, far: FarSide, agent: Path, monkeypatch: pytest.MonkeyPatch, ssh_keys: Keys
) -> None:
    desk.configure(f"IdentityAgent {agent}", "IdentitiesOnly no", "IdentityFile none")
    assert desk.say(far.address) == "hello\n"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    desk.configure(
        "IdentityAgent SSH_AUTH_SOCK", f"IdentityFile {ssh_keys.path('user')}.pub"
    )  # the public half names the agent's key
    assert desk.say(far.address) == "hello\n"
    desk.configure("IdentityAgent SSH_AUTH_SOCK", f"IdentityFile {ssh_keys.path('other')}.pub")
    assert desk.problem(far.address).code == "ssh.no_key_accepted"


def test_the_agent_is_never_forwarded(desk: Desk, far: FarSide, agent: Path) -> None:
    desk.configure(
        f"IdentityAgent {agent}", "IdentitiesOnly no", "IdentityFile none", "ForwardAgent yes"
    )
    assert desk.say(far.address, 'echo "<$SSH_AUTH_SOCK>"') == "<>\n"


def sign_user(keys: Keys, *options: str) -> None:
    keys.path("ca")
    keys.path("staff")
    command = ["ssh-keygen", "-q", "-s", "ca", "-I", "staff card", "-n", "trainer", *options]
    subprocess.run([*command, "staff.pub"], cwd=keys.folder, check=True, capture_output=True)


def test_a_certificate_lets_in(desk: Desk, far: FarSide, ssh_keys: Keys) -> None:
    sign_user(ssh_keys)
    far.authorized.write_text(f"cert-authority {ssh_keys.public('ca')}")
    desk.configure(f"IdentityFile {ssh_keys.path('staff')}")
    assert desk.say(far.address) == "hello\n"
    elsewhere = desk.folder / "card.pub"
    beside = ssh_keys.folder / "staff-cert.pub"
    elsewhere.write_bytes(beside.read_bytes())
    beside.unlink()
    assert desk.problem(far.address).code == "ssh.no_key_accepted"
    desk.configure(f"CertificateFile {elsewhere}", f"IdentityFile {ssh_keys.path('staff')}")
    assert desk.say(far.address) == "hello\n"


def test_a_certificate_that_has_expired(desk: Desk, far: FarSide, ssh_keys: Keys) -> None:
    sign_user(ssh_keys, "-V", "20200101:20200102")
    far.authorized.write_text(f"cert-authority {ssh_keys.public('ca')}")
    desk.configure(f"IdentityFile {ssh_keys.path('staff')}")
    problem = desk.problem(far.address)
    assert problem.code == "ssh.certificate_expired"
    assert "staff card" in problem.message
    (ssh_keys.folder / "staff-cert.pub").unlink()


def test_a_password(desk: Desk, far: FarSide) -> None:
    far.manners.keys, far.manners.password = False, "tulip"
    person = Scripted({"password": ["rose", "tulip"]})
    assert desk.say(far.address, person=person) == "hello\n"
    assert {question.host for question in person.asked} == {far.address}
    problem = desk.problem(far.address, Scripted({"password": ["a", "b", "c"]}))
    assert problem.code == "ssh.password_wrong"
    before = len(far.attempts)
    assert desk.problem(far.address, Scripted({"password": [None]})).code == "ssh.given_up"
    assert len(far.attempts) == before + 1


def test_two_factors(desk: Desk, far: FarSide) -> None:
    far.manners.keys, far.manners.password, far.manners.code = False, "tulip", "123456"
    person = Scripted({"password": ["tulip", "tulip"], "code": ["000000", "123456"]})
    assert desk.say(far.address, person=person) == "hello\n"
    kinds = [question.kind for question in person.asked]
    assert kinds == ["password", "code", "password", "code"]
    assert "Verification code" in person.asked[1].prompt
    assert {question.host for question in person.asked} == {far.address}


def test_a_person_may_take_their_time(
    desk: Desk, far: FarSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound counts what the server takes, not what the person does."""
    for module in ("asyncssh.client", "openssh.connection"):
        monkeypatch.setattr(f"engine.remote.ssh.{module}.AUTHENTICATE_S", 1.2)
    monkeypatch.setattr("engine.remote.ssh.openssh.connection.REACH_S", 0.3)
    far.manners.keys, far.manners.password = False, "tulip"
    person = Scripted({"password": ["tulip"]}, delay_s=1.8)
    assert desk.say(far.address, person=person) == "hello\n"


def test_a_connection_is_given_up_while_a_person_thinks(desk: Desk, far: FarSide) -> None:
    far.manners.keys, far.manners.password = False, "tulip"
    withdrawn: list[bool] = []

    class Slow(Scripted):
        async def ask(self, question: object) -> str | None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                withdrawn.append(True)
                raise
            return None

    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7):
                await desk.connect(far.address, Slow())

    asyncio.run(work())
    assert withdrawn == [True]


@ONLY_OURS
def test_a_server_that_goes_withdraws_its_question(desk: Desk, far: FarSide) -> None:
    far.manners.keys, far.manners.password = False, "tulip"
    withdrawn: list[bool] = []

    class Slow(Scripted):
        async def ask(self, question: object) -> str | None:
            try:
                await asyncio.to_thread(far.drop)
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                withdrawn.append(True)
                raise
            return None

    began = time.monotonic()
    problem = desk.problem(far.address, Slow())
    assert problem.code == "ssh.closed"
    assert may_pass(problem)
    assert withdrawn == [True]
    assert time.monotonic() - began < 10


def test_no_key_is_accepted(desk: Desk, far: FarSide, ssh_keys: Keys) -> None:
    other, open_to_all = ssh_keys.path("other"), desk.folder / "open"
    open_to_all.write_bytes(ssh_keys.path("user").read_bytes())
    open_to_all.chmod(0o644)
    desk.configure(f"IdentityFile {other}", f"IdentityFile {open_to_all}")
    problem = desk.problem(far.address)
    assert problem.code == "ssh.no_key_accepted"
    assert str(other) in problem.message
    assert str(open_to_all) in problem.message
    desk.configure("IdentityFile none")
    assert "you have none" in desk.problem(far.address).message


def test_too_many_keys(desk: Desk, far: FarSide, ssh_keys: Keys) -> None:
    names = ["other", "one", "two", "user"]
    desk.configure(*(f"IdentityFile {ssh_keys.path(name)}" for name in names))
    far.manners.tries = 3
    problem = desk.problem(far.address)
    assert problem.code == "ssh.too_many_failures"
    assert "IdentitiesOnly" in problem.hint


def test_an_account_that_has_expired(desk: Desk, far: FarSide, ssh_keys: Keys) -> None:
    desk.configure(f"IdentityFile {ssh_keys.path('user')}")
    far.manners.expired = "Your account has expired; please contact your system administrator.\n"
    problem = desk.problem(far.address)
    assert problem.code == "ssh.account_expired"
    assert "please contact your system administrator" in problem.message


def test_forwarding_is_forbidden(desk: Desk, far: FarSide, ssh_keys: Keys) -> None:
    desk.configure(f"IdentityFile {ssh_keys.path('user')}")
    far.manners.forwarding = False

    async def work(connection: base.Connection) -> None:
        with pytest.raises(LaunchError) as raised:
            await connection.forward(80, desk.folder / "line")
        assert raised.value.problem.code == "ssh.forwarding_forbidden"
        assert "AllowTcpForwarding" in raised.value.problem.hint
        assert (await connection.run("true")).code == 0

    desk.with_connection(far.address, work)


def test_no_secret_stands_in_an_argument_or_a_file(
    desk: Desk, far: FarSide, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others, or a backup, could read it."""
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))
    far.manners.keys, far.manners.password = False, "tulip in winter"
    seen: list[str] = []

    async def work(connection: base.Connection) -> None:
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                seen.extend(process.cmdline())
                seen.extend(process.environ().values())
        for folder in (desk.folder, short_folder):
            files = [file for file in folder.rglob("*") if file.is_file()]
            seen.extend(file.read_text(errors="replace") for file in files)

    desk.with_connection(far.address, work, Scripted({"password": ["tulip in winter"]}))
    assert not [text for text in seen if "tulip in winter" in text]
    assert os.environ.get("SSH_ASKPASS") is None
