"""SSH configuration as read by AsyncSSH, compared with `ssh -G`, and host aliases."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from engine.protocol.problems import LaunchError
from engine.remote.ssh.address import Address, config_hosts, parse_address, server_name
from engine.remote.ssh.openssh.command_line import OpenSSH, destination
from engine.remote.ssh.settings import Settings, read_settings
from tests.engine.remote.ssh.person import SshClient
from tests.support.ssh_server import FarSide, Keys

CONFIG = """
# what people write
Include conf.d/*.conf
Host gpu1 gpu2 !gpu3 *.cluster
    HostName %h.example.org
    User = "alice"
    ProxyJump bastion,bob@inner:2200

Host bastion
    HostName 10.0.0.1
    Port 2222
    IdentityFile ~/.ssh/bastion
    IdentitiesOnly yes
Match host 10.0.0.1 exec "true"
    HostKeyAlias the-bastion
Match originalhost bastion exec "false"
    User nobody
Match user alice
    UserKnownHostsFile ~/.ssh/alice_hosts /dev/null
Host *
    User carol
    HashKnownHosts yes
    ForwardAgent yes
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Home folder with a configuration that includes others."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent/of/mine")
    folder = tmp_path / ".ssh"
    (folder / "conf.d").mkdir(parents=True)
    (folder / "config").write_text(CONFIG)
    (folder / "conf.d" / "work.conf").write_text(
        'Host "lab" lab-*\n Port 2022\n Include deeper\nHost=cafe\n ProxyCommand nc %h %p | tee x\n'
    )
    (folder / "deeper").write_text("Host lab\n IdentityAgent ~/agent\nHost under\n")
    return tmp_path


def settings(text: str) -> Settings:
    return read_settings(parse_address(text))


@pytest.mark.usefixtures("home")
def test_config_hosts_lists_concrete_aliases() -> None:
    assert config_hosts() == ["lab", "under", "cafe", "gpu1", "gpu2", "bastion"]


def test_config_hosts_of_missing_and_broken_files(tmp_path: Path) -> None:
    assert config_hosts(tmp_path / "none") == []
    broken = tmp_path / "broken"
    broken.write_text('Host a\nHost "b\n')
    with pytest.raises(LaunchError) as raised:
        config_hosts(broken)
    assert raised.value.problem.where == f"{broken}:2"
    broken.write_text(f"Include {broken}\n")
    with pytest.raises(LaunchError, match="includes itself"):
        config_hosts(broken)


def test_settings_of_a_host_are_resolved(home: Path) -> None:
    one = settings("gpu1")
    assert (one.host, one.user, one.port) == ("gpu1.example.org", "alice", 22)
    assert one.jumps == ("bastion", "bob@inner:2200")
    assert one.user_files == (home / ".ssh/alice_hosts",)
    assert one.hashed
    assert one.agent == Path("/agent/of/mine")
    assert one.keys[0] == home / ".ssh/id_rsa"
    jump = settings("bastion")
    assert (jump.server, jump.host_key_alias) == ("carol@10.0.0.1:2222", "the-bastion")
    assert jump.known_as("10.0.0.1") == "the-bastion"
    assert jump.keys == (home / ".ssh/bastion",)
    assert jump.only_these
    assert settings("dave@bastion:99").server == "dave@10.0.0.1:99"
    assert settings("lab").agent == home / "agent"
    assert settings("cafe").proxy == "nc cafe 22 | tee x"


def test_first_of_proxyjump_and_proxycommand_wins(tmp_path: Path) -> None:
    config = tmp_path / "config"
    for lines, jumps, proxy in (
        ("ProxyJump a\nProxyCommand b", ("a",), None),
        ("ProxyCommand b\nProxyJump a", (), "b"),
        ("ProxyJump none\nProxyCommand b", (), None),
        ("ProxyCommand none\nProxyJump a", (), None),
    ):
        config.write_text(lines)
        settings_ = read_settings(Address("x"), config)
        assert (settings_.jumps, settings_.proxy) == (jumps, proxy)


def test_resolved_settings_equal_openssh(home: Path) -> None:
    """`ssh` ignores $HOME, so paths are not compared."""

    async def work() -> None:
        ssh = OpenSSH(home, home / ".ssh" / "config", None)
        ssh.write_config(ask=True)
        for text in ("gpu1", "gpu2", "eve@gpu1:2", "bastion", "x.cluster", "unheard.of"):
            settings_, openssh_settings = (
                settings(text),
                await ssh.resolve(destination(parse_address(text))),
            )
            assert (settings_.server, settings_.jumps) == (
                openssh_settings.server,
                openssh_settings.jumps,
            )
            assert openssh_settings.known_as == settings_.known_as(settings_.host)

    config = home / ".ssh" / "config"
    config.write_text(config.read_text().replace("conf.d/*", f"{home}/.ssh/conf.d/*"))
    deeper = home / ".ssh" / "conf.d" / "work.conf"
    deeper.write_text(deeper.read_text().replace("deeper", f"{home}/.ssh/deeper"))
    asyncio.run(work())
    ssh = OpenSSH(home, config, None)
    output = subprocess.run(ssh.command("-G", "gpu1"), capture_output=True, text=True).stdout
    for line in ("forwardagent no", "stricthostkeychecking ask", "serveraliveinterval 5"):
        assert line in output.splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu1", Address("gpu1")),
        ("me@gpu1", Address("gpu1", "me")),
        ("me@domain@gpu1:2200", Address("gpu1", "me@domain", 2200)),
        ("ssh://me@gpu1:2200/", Address("gpu1", "me", 2200)),
        ("[fe80::1%eth0]:22", Address("fe80::1%eth0", None, 22)),
        ("::1", Address("::1")),
        ("me@2001:db8::1", Address("2001:db8::1", "me")),
    ],
)
def test_parse_address_accepts_user_port_and_ipv6(text: str, expected: Address) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "@x", "x:0", "x:65536", "-oProxyCommand=x", "a b", "x:y", "a/b"),
        *("$(touch pwned)", "$(id)", "`id`", "a;id", "a|id", "a&id", "a>b", "a'b", 'a"b', "a\\b"),
        *("$(id)@host", "`id`@host", "a;id@host", "-l@host", "a$IFS@host", "$HOME"),
        *("a\x1b]0;x\x07", "a\x00b", "a\u202eb", "a\x9bb", "a%hb", "a,b", "{a}", "~$(id)"),
        *("[::1%$(id)]", "fe80::1%`id`", "me@[::1%;id]", "ssh://$(id)@host/"),
    ],
)
def test_invalid_address_raises_launch_error(text: str) -> None:
    with pytest.raises(LaunchError) as raised:
        parse_address(text)
    assert raised.value.problem.code == "ssh.bad_address"


def test_ipv6_server_name_has_brackets() -> None:
    assert server_name("me", "::1", 22) == "me@[::1]:22"


def test_broken_configuration_names_file_and_line(client: SshClient, far: FarSide) -> None:
    inner = client.folder / "inner"
    inner.write_text("# fine\nPort fast\n")
    client.config.write_text(f"Include {inner}\n")
    problem = client.problem(far.address.rpartition(":")[0])
    assert problem.code == "ssh.config_broken"
    assert problem.where == f"{inner}:2"


@pytest.mark.parametrize("transport", ["system"], indirect=True)
def test_missing_ssh_program_is_reported(
    client: SshClient, far: FarSide, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert client.problem(far.address).code == "ssh.ssh_missing"


def test_default_configuration_files_are_used(
    home: Path, far: FarSide, ssh_keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.protocol.requests.remote import HostSpec
    from engine.remote.ssh.connect import connect
    from tests.engine.remote.ssh.person import ScriptedPrompter

    monkeypatch.delenv("SSH_AUTH_SOCK")
    (home / ".ssh" / "config").write_text(f"Host far\n HostName 127.0.0.1\n Port {far.port}\n")
    key = home / ".ssh" / "id_ed25519"
    key.write_bytes(ssh_keys.path("user").read_bytes())
    key.chmod(0o600)

    async def work(prompter: ScriptedPrompter) -> None:
        connection = await connect(HostSpec(name="far", address="far"), prompter)
        assert (await connection.run("true")).code == 0
        await connection.close()

    asyncio.run(work(ScriptedPrompter({"host_key": ["yes"]})))
    assert far.known().split()[2] in (home / ".ssh" / "known_hosts").read_text()
    asyncio.run(work(ScriptedPrompter()))


def test_heavy_modules_are_not_imported_early() -> None:
    code = "import sys, engine.remote.ssh.connect, engine.remote.ssh.address, engine.client;"
    code += "print(*{'asyncssh', 'cryptography', 'psutil'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "line",
    [
        "Include conf.d/***.conf",
        "Include a\0b",
        "CertificateFile ~nobody-of-this-name/x",
        "HostName %unknown",
        "{}\r= x",
        "  \x1d",
    ],
    ids=ascii,
)
def test_broken_line_is_read_or_rejected_with_config_broken(tmp_path: Path, line: str) -> None:
    """Found by `python -m tests.fuzz ssh_config`."""
    file = tmp_path / "config"
    file.write_text(f"Host *\n  {line}\n")
    codes = set()
    for read in (lambda: config_hosts(file), lambda: read_settings(Address("gpu1"), file)):
        try:
            read()
        except LaunchError as error:
            codes.add(error.problem.code)
    assert codes <= {"ssh.config_broken"}
