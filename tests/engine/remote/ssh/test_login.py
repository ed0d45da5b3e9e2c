"""Authentication: keys, passphrases, agents, certificates, passwords, codes; and its failures."""

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
from tests.engine.remote.ssh.person import ScriptedPrompter, SshClient
from tests.support.ssh_server import FarSide, Keys, run_agent

ONLY_OURS = pytest.mark.parametrize("transport", ["asyncssh"], indirect=True)


@pytest.fixture
def client(client: SshClient, far: FarSide) -> SshClient:
    """Client with the server's key in known_hosts and no key of its own."""
    client.known_hosts.write_text(far.known())
    return client


@pytest.fixture
def locked_key(far: FarSide, ssh_keys: Keys) -> Path:
    """Authorized key with the passphrase “open sesame”."""
    key = ssh_keys.path("locked", passphrase="open sesame")
    far.authorized.write_text(ssh_keys.public("locked"))
    return key


@pytest.fixture
def agent(tmp_path: Path, ssh_keys: Keys) -> Iterator[Path]:
    """Socket of an SSH agent that holds the key `user`."""
    process = run_agent(tmp_path, ssh_keys.path("user"))
    yield tmp_path / "agent"
    process.terminate()
    process.wait()


def test_passphrase_is_asked_up_to_three_times(
    client: SshClient, far: FarSide, locked_key: Path
) -> None:
    client.configure(f"IdentityFile {locked_key}")
    prompter = ScriptedPrompter({"passphrase": ["wrong", "open sesame"]})
    assert client.run_command(far.address, prompter=prompter) == "hello\n"
    assert prompter.questions[0].host == far.address
    assert str(locked_key) in prompter.questions[0].prompt
    assert not prompter.questions[0].echo
    problem = client.problem(far.address, ScriptedPrompter({"passphrase": ["a", "b", "c"]}))
    assert problem.code == "ssh.passphrase_wrong"
    assert not may_pass(problem)
    problem = client.problem(far.address, ScriptedPrompter({"passphrase": ["a", None]}))
    assert problem.code == "ssh.passphrase_given_up"
    assert far.logins == 1


def test_passphrase_of_an_unaccepted_key_is_not_asked(
    client: SshClient, far: FarSide, ssh_keys: Keys
) -> None:
    locked_key = ssh_keys.path("locked", passphrase="open sesame")
    client.configure(f"IdentityFile {locked_key}", f"IdentityFile {ssh_keys.path('user')}")
    prompter = ScriptedPrompter()
    assert client.run_command(far.address, prompter=prompter) == "hello\n"
    assert prompter.questions == []


@ONLY_OURS
def test_key_file_without_public_half_is_supported(client: SshClient, far: FarSide) -> None:
    key = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
    file = client.folder / "old"
    file.write_bytes(key.export_private_key("pkcs8-pem", passphrase="open sesame"))
    file.chmod(0o600)
    far.authorized.write_bytes(key.export_public_key())
    client.configure(f"IdentityFile {file}")
    prompter = ScriptedPrompter({"passphrase": ["wrong", "open sesame"]})
    assert client.run_command(far.address, prompter=prompter) == "hello\n"


def test_agent_key_is_used_and_selected_by_its_public_half(
    client: SshClient, far: FarSide, agent: Path, monkeypatch: pytest.MonkeyPatch, ssh_keys: Keys
) -> None:
    client.configure(f"IdentityAgent {agent}", "IdentitiesOnly no", "IdentityFile none")
    assert client.run_command(far.address) == "hello\n"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    client.configure(
        "IdentityAgent SSH_AUTH_SOCK", f"IdentityFile {ssh_keys.path('user')}.pub"
    )  # the public half names the agent's key
    assert client.run_command(far.address) == "hello\n"
    client.configure("IdentityAgent SSH_AUTH_SOCK", f"IdentityFile {ssh_keys.path('other')}.pub")
    assert client.problem(far.address).code == "ssh.no_key_accepted"


def test_agent_is_never_forwarded(client: SshClient, far: FarSide, agent: Path) -> None:
    client.configure(
        f"IdentityAgent {agent}", "IdentitiesOnly no", "IdentityFile none", "ForwardAgent yes"
    )
    assert client.run_command(far.address, 'echo "<$SSH_AUTH_SOCK>"') == "<>\n"


def sign_user(keys: Keys, *options: str) -> None:
    keys.path("ca")
    keys.path("staff")
    command = ["ssh-keygen", "-q", "-s", "ca", "-I", "staff card", "-n", "trainer", *options]
    subprocess.run([*command, "staff.pub"], cwd=keys.folder, check=True, capture_output=True)


def test_certificate_is_found_beside_the_key_or_by_option(
    client: SshClient, far: FarSide, ssh_keys: Keys
) -> None:
    sign_user(ssh_keys)
    far.authorized.write_text(f"cert-authority {ssh_keys.public('ca')}")
    client.configure(f"IdentityFile {ssh_keys.path('staff')}")
    assert client.run_command(far.address) == "hello\n"
    moved_certificate = client.folder / "card.pub"
    certificate = ssh_keys.folder / "staff-cert.pub"
    moved_certificate.write_bytes(certificate.read_bytes())
    certificate.unlink()
    assert client.problem(far.address).code == "ssh.no_key_accepted"
    client.configure(
        f"CertificateFile {moved_certificate}", f"IdentityFile {ssh_keys.path('staff')}"
    )
    assert client.run_command(far.address) == "hello\n"


def test_expired_certificate_is_reported(client: SshClient, far: FarSide, ssh_keys: Keys) -> None:
    sign_user(ssh_keys, "-V", "20200101:20200102")
    far.authorized.write_text(f"cert-authority {ssh_keys.public('ca')}")
    client.configure(f"IdentityFile {ssh_keys.path('staff')}")
    problem = client.problem(far.address)
    assert problem.code == "ssh.certificate_expired"
    assert "staff card" in problem.message
    (ssh_keys.folder / "staff-cert.pub").unlink()


def test_password_is_asked_up_to_three_times_and_can_be_cancelled(
    client: SshClient, far: FarSide
) -> None:
    far.manners.keys, far.manners.password = False, "tulip"
    prompter = ScriptedPrompter({"password": ["rose", "tulip"]})
    assert client.run_command(far.address, prompter=prompter) == "hello\n"
    assert {question.host for question in prompter.questions} == {far.address}
    problem = client.problem(far.address, ScriptedPrompter({"password": ["a", "b", "c"]}))
    assert problem.code == "ssh.password_wrong"
    before = len(far.attempts)
    assert (
        client.problem(far.address, ScriptedPrompter({"password": [None]})).code == "ssh.given_up"
    )
    assert len(far.attempts) == before + 1


def test_two_factor_login_asks_for_password_and_code(client: SshClient, far: FarSide) -> None:
    far.manners.keys, far.manners.password, far.manners.code = False, "tulip", "123456"
    prompter = ScriptedPrompter({"password": ["tulip", "tulip"], "code": ["000000", "123456"]})
    assert client.run_command(far.address, prompter=prompter) == "hello\n"
    kinds = [question.kind for question in prompter.questions]
    assert kinds == ["password", "code", "password", "code"]
    assert "Verification code" in prompter.questions[1].prompt
    assert {question.host for question in prompter.questions} == {far.address}


def test_time_of_the_person_does_not_count_towards_timeout(
    client: SshClient, far: FarSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout excludes the time that the person takes."""
    for module in ("asyncssh.client", "openssh.connection"):
        monkeypatch.setattr(f"engine.remote.ssh.{module}.AUTHENTICATE_S", 1.2)
    monkeypatch.setattr("engine.remote.ssh.openssh.connection.REACH_S", 0.3)
    far.manners.keys, far.manners.password = False, "tulip"
    prompter = ScriptedPrompter({"password": ["tulip"]}, delay_s=1.8)
    assert client.run_command(far.address, prompter=prompter) == "hello\n"


def test_cancelled_connection_withdraws_the_question(client: SshClient, far: FarSide) -> None:
    far.manners.keys, far.manners.password = False, "tulip"
    withdrawn: list[bool] = []

    class Slow(ScriptedPrompter):
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
                await client.connect(far.address, Slow())

    asyncio.run(work())
    assert withdrawn == [True]


@ONLY_OURS
def test_lost_server_withdraws_the_question(client: SshClient, far: FarSide) -> None:
    far.manners.keys, far.manners.password = False, "tulip"
    withdrawn: list[bool] = []

    class Slow(ScriptedPrompter):
        async def ask(self, question: object) -> str | None:
            try:
                await asyncio.to_thread(far.drop)
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                withdrawn.append(True)
                raise
            return None

    start = time.monotonic()
    problem = client.problem(far.address, Slow())
    assert problem.code == "ssh.closed"
    assert may_pass(problem)
    assert withdrawn == [True]
    assert time.monotonic() - start < 10


def test_no_accepted_key_is_reported_with_the_tried_keys(
    client: SshClient, far: FarSide, ssh_keys: Keys
) -> None:
    other, world_readable = ssh_keys.path("other"), client.folder / "open"
    world_readable.write_bytes(ssh_keys.path("user").read_bytes())
    world_readable.chmod(0o644)
    client.configure(f"IdentityFile {other}", f"IdentityFile {world_readable}")
    problem = client.problem(far.address)
    assert problem.code == "ssh.no_key_accepted"
    assert str(other) in problem.message
    assert str(world_readable) in problem.message
    client.configure("IdentityFile none")
    assert "none was found" in client.problem(far.address).message


def test_too_many_keys_are_reported(client: SshClient, far: FarSide, ssh_keys: Keys) -> None:
    names = ["other", "one", "two", "user"]
    client.configure(*(f"IdentityFile {ssh_keys.path(name)}" for name in names))
    far.manners.tries = 3
    problem = client.problem(far.address)
    assert problem.code == "ssh.too_many_failures"
    assert "IdentitiesOnly" in problem.hint


def test_expired_account_is_reported(client: SshClient, far: FarSide, ssh_keys: Keys) -> None:
    client.configure(f"IdentityFile {ssh_keys.path('user')}")
    far.manners.expired = "Your account has expired; please contact your system administrator.\n"
    problem = client.problem(far.address)
    assert problem.code == "ssh.account_expired"
    assert "please contact your system administrator" in problem.message


def test_forbidden_forwarding_is_reported(client: SshClient, far: FarSide, ssh_keys: Keys) -> None:
    client.configure(f"IdentityFile {ssh_keys.path('user')}")
    far.manners.forwarding = False

    async def work(connection: base.Connection) -> None:
        with pytest.raises(LaunchError) as raised:
            await connection.forward(80, client.folder / "line")
        assert raised.value.problem.code == "ssh.forwarding_forbidden"
        assert "AllowTcpForwarding" in raised.value.problem.hint
        assert (await connection.run("true")).code == 0

    client.with_connection(far.address, work)


def test_secrets_are_in_no_argument_environment_or_file(
    client: SshClient, far: FarSide, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets must not appear where other users or a backup could read them."""
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))
    far.manners.keys, far.manners.password = False, "tulip in winter"
    texts: list[str] = []

    async def work(connection: base.Connection) -> None:
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):  # the process has ended
                texts.extend(process.cmdline())
                texts.extend(process.environ().values())
        for folder in (client.folder, short_folder):
            files = [file for file in folder.rglob("*") if file.is_file()]
            texts.extend(file.read_text(errors="replace") for file in files)

    client.with_connection(far.address, work, ScriptedPrompter({"password": ["tulip in winter"]}))
    assert not [text for text in texts if "tulip in winter" in text]
    assert os.environ.get("SSH_ASKPASS") is None
