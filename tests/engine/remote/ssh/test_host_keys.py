"""Host keys: known ones are accepted, unknown ones are confirmed, changed ones stop the connection.

In every rejected case no authentication may have been attempted.
"""

import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.remote.ssh.problems import may_pass
from tests.engine.remote.ssh.person import ScriptedPrompter, SshClient
from tests.support.ssh_server import FarSide, Keys


@pytest.fixture
def known_hosts(trusted_client: SshClient) -> Path:
    return trusted_client.known_hosts


def fingerprint(keys: Keys, name: str) -> str:
    result = subprocess.run(
        ["ssh-keygen", "-lf", f"{keys.path(name)}.pub"], capture_output=True, text=True, check=True
    )
    return result.stdout.split()[1]


def entry(keys: Keys, name: str, host: str, marker: str = "") -> str:
    kind, data, *_ = keys.public(name).split()
    return f"{marker} {host} {kind} {data}\n".lstrip()


def sign_host(keys: Keys, principals: str, *options: str) -> None:
    """Sign the host key `certified` by the authority `ca`."""
    keys.path("ca")
    keys.path("certified")
    command = ["ssh-keygen", "-q", "-s", "ca", "-I", "a host", "-h", "-n", principals, *options]
    subprocess.run([*command, "certified.pub"], cwd=keys.folder, check=True, capture_output=True)


@pytest.fixture
def second_kind(ssh_keys: Keys) -> str:
    ssh_keys.path("ecdsa", "ecdsa-sha2-nistp256")
    return "ecdsa"


def test_known_key_is_accepted_without_a_question(trusted_client: SshClient, far: FarSide) -> None:
    prompter = ScriptedPrompter()
    assert trusted_client.run_command(far.address, prompter=prompter) == "hello\n"
    assert prompter.questions == []


def test_unknown_key_is_confirmed_and_stored(
    trusted_client: SshClient, known_hosts: Path, far: FarSide, ssh_keys: Keys
) -> None:
    known_hosts.unlink()
    prompter = ScriptedPrompter({"host_key": ["yes"]})
    assert trusted_client.run_command(far.address, prompter=prompter) == "hello\n"
    (question,) = prompter.questions
    assert question.detail == f"ED25519 {fingerprint(ssh_keys, 'host')}"
    assert question.host == far.address
    assert known_hosts.read_text() == far.known()
    assert stat.S_IMODE(known_hosts.stat().st_mode) == 0o600
    assert trusted_client.run_command(far.address) == "hello\n"


@pytest.mark.parametrize("answer", [None, "no", ""])
def test_unconfirmed_key_stops_before_authentication(
    trusted_client: SshClient, known_hosts: Path, far: FarSide, answer: str | None
) -> None:
    known_hosts.write_text("# empty")
    problem = trusted_client.problem(far.address, ScriptedPrompter({"host_key": [answer]}))
    assert problem.code == "ssh.host_key_refused"
    assert not may_pass(problem)
    assert known_hosts.read_text() == "# empty"
    assert far.attempts == []


def test_new_entry_is_hashed_if_configured(
    trusted_client: SshClient, known_hosts: Path, far: FarSide, ssh_keys: Keys
) -> None:
    trusted_client.configure("HashKnownHosts yes", f"IdentityFile {ssh_keys.path('user')}")
    known_hosts.write_text(
        "elsewhere ssh-ed25519 AAAA" + "\n" * (trusted_client.transport == "system")
    )
    trusted_client.run_command(far.address, prompter=ScriptedPrompter({"host_key": ["yes"]}))
    old, new = known_hosts.read_text().splitlines()
    assert old == "elsewhere ssh-ed25519 AAAA"
    assert new.startswith("|1|")
    assert trusted_client.run_command(far.address) == "hello\n"
    lookup = subprocess.run(
        ["ssh-keygen", "-F", far.name, "-f", str(known_hosts)], capture_output=True, text=True
    )
    assert "found: line 2" in lookup.stdout


def test_strict_checking_rejects_unknown_keys_without_a_question(
    trusted_client: SshClient, known_hosts: Path, far: FarSide
) -> None:
    known_hosts.write_text("")
    trusted_client.configure("StrictHostKeyChecking yes")
    assert trusted_client.problem(far.address).code == "ssh.host_key_unknown"
    assert far.attempts == []


@pytest.mark.parametrize("value", ["no", "accept-new"])
def test_permissive_strict_checking_values_still_ask(
    trusted_client: SshClient, known_hosts: Path, far: FarSide, value: str
) -> None:
    known_hosts.write_text("")
    trusted_client.configure(f"StrictHostKeyChecking {value}")
    assert trusted_client.problem(far.address, ScriptedPrompter({"host_key": ["no"]})).code == (
        "ssh.host_key_refused"
    )


@pytest.mark.parametrize("hashed", [False, True])
def test_changed_key_is_rejected(
    trusted_client: SshClient, known_hosts: Path, far: FarSide, ssh_keys: Keys, hashed: bool
) -> None:
    known_hosts.write_text("# first\n" + entry(ssh_keys, "other", far.name))
    if hashed:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known_hosts)], capture_output=True)
    problem = trusted_client.problem(far.address)
    assert problem.code == "ssh.host_key_changed"
    assert problem.where == f"{known_hosts}:2"
    assert f"ssh-keygen -R '{far.name}' -f {known_hosts}" in problem.hint
    assert fingerprint(ssh_keys, "host") in problem.message
    assert not may_pass(problem)
    assert far.attempts == []


def test_known_key_replaced_by_another_type_is_a_change(
    trusted_client: SshClient, known_hosts: Path, far: FarSide, second_kind: str, ssh_keys: Keys
) -> None:
    known_hosts.write_text(entry(ssh_keys, second_kind, far.name))
    problem = trusted_client.problem(far.address)
    assert problem.code == "ssh.host_key_changed"
    assert problem.where == f"{known_hosts}:1"
    assert far.attempts == []


def test_additional_key_types_are_accepted(
    trusted_client: SshClient, far: FarSide, second_kind: str, ssh_keys: Keys
) -> None:
    ssh_keys.path("rsa", "ssh-rsa")
    for known_hosts, *others in (["host", "ecdsa", "rsa"], ["rsa", "host"], ["ecdsa", "host"]):
        far.restart(*others, known_hosts)
        trusted_client.known_hosts.write_text(entry(ssh_keys, known_hosts, far.name))
        assert trusted_client.run_command(far.address) == "hello\n"


def test_revoked_key_is_rejected(
    trusted_client: SshClient, known_hosts: Path, far: FarSide, ssh_keys: Keys
) -> None:
    known_hosts.write_text(far.known() + entry(ssh_keys, "host", far.name, "@revoked"))
    problem = trusted_client.problem(far.address)
    assert problem.code == "ssh.host_key_revoked"
    assert not may_pass(problem)
    assert far.attempts == []


def test_entry_without_port_is_accepted_when_it_matches(
    trusted_client: SshClient, far: FarSide, ssh_keys: Keys
) -> None:
    trusted_client.known_hosts.write_text(entry(ssh_keys, "host", "127.0.0.1"))
    assert trusted_client.run_command(far.address) == "hello\n"
    trusted_client.known_hosts.write_text(entry(ssh_keys, "other", "127.0.0.1"))
    prompter = ScriptedPrompter({"host_key": ["no"]})
    assert trusted_client.problem(far.address, prompter).code == "ssh.host_key_refused"


def test_patterns_and_several_files_are_supported(
    trusted_client: SshClient, far: FarSide, ssh_keys: Keys
) -> None:
    first, second = trusted_client.folder / "first", trusted_client.folder / "second"
    first.write_text(entry(ssh_keys, "other", f"!{far.name},[127.*]:*"))
    second.write_text("nonsense\n@odd x\n" + entry(ssh_keys, "host", f"x,[127.0.0.?]:{far.port}"))
    trusted_client.configure(
        f"UserKnownHostsFile {first} {second}", f"IdentityFile {ssh_keys.path('user')}"
    )
    assert trusted_client.run_command(far.address) == "hello\n"


def test_host_key_alias_is_used(trusted_client: SshClient, far: FarSide, ssh_keys: Keys) -> None:
    trusted_client.configure("HostKeyAlias cluster", f"IdentityFile {ssh_keys.path('user')}")
    trusted_client.known_hosts.write_text(entry(ssh_keys, "other", far.name))
    trusted_client.run_command(far.address, prompter=ScriptedPrompter({"host_key": ["yes"]}))
    assert trusted_client.known_hosts.read_text().splitlines()[1].startswith("cluster ssh-ed25519")
    assert trusted_client.run_command(far.address) == "hello\n"


@pytest.fixture
def certified_server(far: FarSide, ssh_keys: Keys) -> Iterator[FarSide]:
    sign_host(ssh_keys, "127.0.0.1")
    far.restart("certified")
    yield far
    (ssh_keys.folder / "certified-cert.pub").unlink()


def test_key_signed_by_a_known_authority_is_accepted(
    trusted_client: SshClient, known_hosts: Path, certified_server: FarSide, ssh_keys: Keys
) -> None:
    known_hosts.write_text(entry(ssh_keys, "ca", "[127.0.0.1]:*", "@cert-authority"))
    assert trusted_client.run_command(certified_server.address) == "hello\n"


def test_key_signed_by_an_unknown_authority_is_confirmed(
    trusted_client: SshClient, known_hosts: Path, certified_server: FarSide, ssh_keys: Keys
) -> None:
    known_hosts.write_text(entry(ssh_keys, "other", "*", "@cert-authority"))
    prompter = ScriptedPrompter({"host_key": ["no"]})
    assert trusted_client.problem(certified_server.address, prompter).code == "ssh.host_key_refused"
    assert prompter.questions[0].detail == f"ED25519 {fingerprint(ssh_keys, 'certified')}"
    assert certified_server.attempts == []


def test_plain_key_under_a_known_authority_is_confirmed(
    trusted_client: SshClient, known_hosts: Path, far: FarSide, ssh_keys: Keys
) -> None:
    known_hosts.write_text(entry(ssh_keys, "other", "*", "@cert-authority"))
    prompter = ScriptedPrompter({"host_key": ["yes"]})
    assert trusted_client.run_command(far.address, prompter=prompter) == "hello\n"
    assert trusted_client.run_command(far.address) == "hello\n"


def test_certificate_of_a_revoked_authority_is_rejected(
    trusted_client: SshClient, known_hosts: Path, certified_server: FarSide, ssh_keys: Keys
) -> None:
    lines = [entry(ssh_keys, "ca", "*", marker) for marker in ("@cert-authority", "@revoked")]
    known_hosts.write_text("".join(lines))
    assert trusted_client.problem(certified_server.address).code == "ssh.host_key_revoked"
    assert certified_server.attempts == []


@pytest.mark.parametrize("transport", ["asyncssh"], indirect=True)
def test_invalid_certificate_is_rejected_with_the_reason(
    trusted_client: SshClient, known_hosts: Path, far: FarSide, ssh_keys: Keys
) -> None:
    known_hosts.write_text(entry(ssh_keys, "ca", "*", "@cert-authority"))
    for principals, options, why in (
        ("elsewhere", [], "principal mismatch"),
        ("127.0.0.1", ["-V", "20200101:20200102"], "expired"),
    ):
        sign_host(ssh_keys, principals, *options)
        far.restart("certified")
        problem = trusted_client.problem(far.address)
        assert problem.code == "ssh.host_certificate"
        assert why in problem.message
    assert far.attempts == []
    (ssh_keys.folder / "certified-cert.pub").unlink()


@pytest.mark.parametrize("transport", ["asyncssh"], indirect=True)
def test_key_is_confirmed_each_time_without_known_hosts(
    trusted_client: SshClient, far: FarSide, ssh_keys: Keys
) -> None:
    trusted_client.configure(
        "UserKnownHostsFile /dev/null", f"IdentityFile {ssh_keys.path('user')}"
    )
    for _ in range(2):
        assert (
            trusted_client.run_command(
                far.address, prompter=ScriptedPrompter({"host_key": ["yes"]})
            )
            == "hello\n"
        )


@pytest.mark.parametrize("transport", ["asyncssh"], indirect=True)
def test_unsupported_option_requires_the_system_ssh(
    trusted_client: SshClient, far: FarSide
) -> None:
    trusted_client.configure("RevokedHostKeys /some/list")
    problem = trusted_client.problem(far.address)
    assert problem.code == "ssh.needs_system"
    assert "RevokedHostKeys" in problem.message
