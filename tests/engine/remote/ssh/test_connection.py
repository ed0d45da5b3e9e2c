"""Connections by both transports, to our server and to OpenSSH's."""

import asyncio
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from engine.protocol.problems import LaunchError
from engine.remote.ssh.base import Connection, Done
from engine.remote.ssh.problems import may_pass
from tests.engine.remote.ssh.person import SshClient, pieces
from tests.support.ssh_server import FarSide
from tests.support.sshd import Sshd
from tests.support.tiny_environments import until

Server = FarSide | Sshd
ODD = """it's a "test" with $HOME, `ls`, \\n, 100 %, !bang, ünï, and
a line break"""


def test_commands_run_by_sh_in_the_home_folder(ready_client: SshClient, server: Server) -> None:
    async def work(connection: Connection) -> None:
        assert connection.server == server.address
        done = await connection.run("pwd; cat; echo oh no >&2; exit 3", b"some input\n")
        assert done == Done(3, f"{server.home}\nsome input\n".encode(), b"oh no\n")
        assert (await connection.run("kill -9 $$")).code == 128 + signal.SIGKILL
        assert (await connection.run("sleep 9 & kill -9 $!; wait $!")).code == 128 + signal.SIGKILL
        first, second = await asyncio.gather(connection.run("echo 1"), connection.run("echo 2"))
        assert (first.out, second.out) == (b"1\n", b"2\n")

    ready_client.with_connection(server.address, work)


def test_any_text_is_passed_as_a_command(ready_client: SshClient, server: Server) -> None:
    async def work(connection: Connection) -> None:
        done = await connection.run(f"cat <<'EOF'\n{ODD}\nEOF\n")
        assert done.out.decode() == ODD + "\n"
        with pytest.raises(ValueError, match="NUL"):
            await connection.run("echo \0")

    ready_client.with_connection(server.address, work)


def test_large_output_is_streamed(ready_client: SshClient, server: Server) -> None:
    size = 3_000_000

    async def work(connection: Connection) -> None:
        chunks: list[bytes] = []

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield bytes(65536)
                await asyncio.sleep(0)

        done = await connection.run(f"head -c {size}", endless(), chunks.append)
        assert (done.code, done.out, len(b"".join(chunks))) == (0, b"", size)
        assert len(chunks) > 10

    ready_client.with_connection(server.address, work)


def test_failing_input_ends_the_remote_command(ready_client: SshClient, server: Server) -> None:
    async def work(connection: Connection) -> None:
        pid_file = server.home / "number"
        pid_file.unlink(missing_ok=True)

        async def failing_input() -> AsyncIterator[bytes]:
            yield b"a"
            await asyncio.to_thread(
                until, lambda: pid_file.exists() and pid_file.read_text().strip()
            )
            raise RuntimeError("the disk here is gone")

        with pytest.raises(RuntimeError, match="the disk"):
            await connection.run("echo $$ > number; cat > /dev/null; sleep 60", failing_input())
        await _assert_process_ends(pid_file)

    ready_client.with_connection(server.address, work)


def test_cancelled_command_ends_with_its_children(ready_client: SshClient, server: Server) -> None:
    async def work(connection: Connection) -> None:
        pid_file = server.home / "child"
        pid_file.unlink(missing_ok=True)
        running = asyncio.create_task(connection.run("sleep 60 & echo $! > child; wait"))
        await asyncio.to_thread(until, lambda: pid_file.exists() and pid_file.read_text().strip())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await _assert_process_ends(pid_file)
        assert (await connection.run("echo still here")).out == b"still here\n"

    ready_client.with_connection(server.address, work)


async def _assert_process_ends(pid_file: Path) -> None:
    await asyncio.to_thread(until, lambda: pid_file.exists() and pid_file.read_text().strip())
    number = int(pid_file.read_text())
    await asyncio.to_thread(until, lambda: _has_ended(number), 5)


def _has_ended(number: int) -> bool:
    try:
        return psutil.Process(number).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_uploaded_file_arrives_and_resumes_at_an_offset(
    ready_client: SshClient, server: Server
) -> None:
    async def work(connection: Connection) -> None:
        name = 'it\'s -a "file" $HOME\\n'
        await connection.upload(pieces(b"0123456789", b"abc" * 50_000), name)
        file = server.home / name
        assert file.read_bytes() == b"0123456789" + b"abc" * 50_000
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        await connection.upload(pieces(b"XYZ"), name, begin=4, mode=0o750)
        assert file.read_bytes() == b"0123XYZ"
        assert stat.S_IMODE(file.stat().st_mode) == 0o750
        with pytest.raises(LaunchError, match="it has only 7 bytes"):
            await connection.upload(pieces(b"!"), name, begin=8)
        with pytest.raises(LaunchError) as raised:
            await connection.upload(pieces(b"!" * 100_000), "/proc/version")
        assert raised.value.problem.code == "ssh.upload_failed"
        assert file.read_bytes() == b"0123XYZ"

    ready_client.with_connection(server.address, work)


def test_socket_is_forwarded_to_one_port(
    ready_client: SshClient, server: Server, tmp_path: Path
) -> None:
    socket = tmp_path / "line" / "engine"

    async def work(connection: Connection) -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1000):
                writer.write(data.upper())
            writer.close()

        listener = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        socket.parent.mkdir(mode=0o700)
        socket.touch()
        with pytest.raises(LaunchError, match="another file with this name"):
            await connection.forward(port, socket)
        socket.unlink()
        await connection.forward(port, socket)
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(b"hello")
        assert await reader.read(5) == b"HELLO"
        writer.close()
        listener.close()
        unused_port = tmp_path / "line" / "nobody"
        await connection.forward(1, unused_port)  # an engine may start to listen later
        reader, writer = await asyncio.open_unix_connection(unused_port)
        assert await reader.read() == b""
        writer.close()

    ready_client.with_connection(server.address, work)
    with pytest.raises(OSError, match=r"refused|No such file"):
        asyncio.run(asyncio.open_unix_connection(socket))  # type: ignore[arg-type]


def test_socket_folder_accessible_to_others_is_rejected(
    trusted_client: SshClient, far: FarSide
) -> None:
    folder = trusted_client.folder / "open"
    folder.mkdir()
    folder.chmod(0o755)

    async def work(connection: Connection) -> None:
        with pytest.raises(LaunchError, match="other users can access"):
            await connection.forward(1, folder / "socket")
        with pytest.raises(LaunchError, match="too long"):
            await connection.forward(1, trusted_client.folder / ("x" * 100) / "socket")

    trusted_client.with_connection(far.address, work)


def test_lost_connection_is_reported_to_all_callers(
    ready_client: SshClient, server: Server
) -> None:
    async def work(connection: Connection) -> None:
        running = asyncio.create_task(connection.run("sleep 60"))
        watching = asyncio.create_task(connection.wait_closed())
        await connection.run("true")
        await asyncio.to_thread(server.drop)
        problem = await watching
        assert problem is not None
        assert problem.code == "ssh.lost"
        assert may_pass(problem)
        assert server.address in problem.message
        with pytest.raises(LaunchError, match="was lost"):
            await running
        with pytest.raises(LaunchError, match="was lost"):
            await connection.run("true")

    ready_client.with_connection(server.address, work)


def test_closed_connection_has_no_problem(ready_client: SshClient, server: Server) -> None:
    async def work() -> None:
        connection = await ready_client.connect(server.address)
        watching = asyncio.create_task(connection.wait_closed())
        await asyncio.sleep(0)
        await connection.close()
        assert await watching is None
        await connection.close()

    asyncio.run(work())
