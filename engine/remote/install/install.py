"""Installation of an engine on a server: upload, install, verify, roll back and remove.

Every step can be repeated: an interrupted installation continues where it stopped. Each engine has
a folder named by version, build and kind. A marker file, written last, marks it as complete, and
the symbolic link `current` selects the engine in use.
"""

import asyncio
import contextlib
import json
import platform
import shutil
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from engine.launcher.engine_root import checkout
from engine.launcher.source_files import engine_id
from engine.protocol.problems import LaunchError, Refused
from engine.protocol.requests.remote import HostReport, HostTick
from engine.remote.install.survey import refuse_unfit
from engine.remote.install.uploads import Wheel, bring_wheels, source_archive, upload_file
from engine.remote.tunnel.shell import Shell
from engine.runtime.closing import cancel
from engine.runtime.files import move_into_place, sha256_of

Tell = Callable[[HostTick], None]

LOCKS = {"engine-cpu": ("pip", "engine-cpu"), "engine-gpu": ("pip", "engine-gpu")}
PROBE = "import torch, transformers, peft, engine.server.serve"
LOOK_S = 2.0
MARK = ".atelier-engine"
"""File that marks a folder of Atelier, so that no other folder is ever removed."""

OURS = """
if [ -e "$base" ] && [ ! -e "$base/$mark" ] && [ -n "$(ls -A "$base")" ]; then exit 76; fi
mkdir -p "$base" && chmod 700 "$base" && touch "$base/$mark"
"""
HELD = """
exec 9>>"$base/lock"
if flock -n 9; then echo "$who" > "$base/lock.who"; echo held; cat > /dev/null
else cat "$base/lock.who" >&2; exit 75; fi
"""
UV = 'export UV_CACHE_DIR="$base/cache/uv" UV_PYTHON_INSTALL_DIR="$base/python" UV_NO_PROGRESS=1\n'
SWITCH = """
now=$(readlink "$base/current") || now=
ln -sfn "engines/$id" "$base/current.new" && mv -fT "$base/current.new" "$base/current" || exit 1
if [ -n "$now" ] && [ "$now" != "engines/$id" ]; then
    ln -sfn "$now" "$base/previous.new" && mv -fT "$base/previous.new" "$base/previous"
fi
"""
SWEEP = """
for old in "$base"/engines/*; do
    name="engines/$(basename "$old")"
    [ "$name" = "$(readlink "$base/current")" ] && continue
    [ "$name" = "$(readlink "$base/previous")" ] && continue
    ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -qF -- "-> $old" && continue  # a run goes on in it
    rm -rf "$old"
done
rm -rf "$base/wheels" "$base/source" "$base/cache/uv"
"""


class Installer:
    """Installation on one server, based on a survey of it. Create it, then `install`."""

    def __init__(
        self, shell: Shell, report: HostReport, tell: Tell, offline: bool | None = None
    ) -> None:
        self._shell, self._report, self._tell = shell, report, tell
        self._offline = offline
        self.id = engine_id(report.engine)
        self._home = f"{shell.base}/engines/{self.id}"
        self._python = f"{self._home}/.venv/bin/python"

    async def install(self) -> str:
        """Install the engine on the server and return its id; returns early if it is installed
        already. Raises LaunchError, Refused, EnvironmentMissing; uploaded files then stay, and the
        next call resumes."""
        refuse_unfit(self._report)
        await self._own()
        async with self._turn():
            if not await self._is_ready():
                uv = await self._bring_uv()
                await self._bring_source()
                await self._make_environment(uv)
                await self._fill(uv)
                await self._try()
            await self._shell.run(SWITCH, what="switch engines", id=self.id)
            await self._shell.run(SWEEP, what="delete older engines")
        return self.id

    async def _own(self) -> None:
        """Create and mark the base folder. Raises Refused if it contains other files."""
        try:
            await self._shell.run(OURS, what="create Atelier's folder", mark=MARK)
        except LaunchError as error:
            if "exit 76" not in error.problem.message:
                raise
            raise Refused.of(
                "host.folder_not_ours",
                f"{self._shell.base} on {self._shell.connection.server} contains files of other "
                "programs.",
                "Choose an empty or new installation folder.",
            ) from None

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Hold the server's installation lock. Raises Refused if another installation holds it."""
        held, done = asyncio.Event(), asyncio.Event()

        async def until_done() -> AsyncIterator[bytes]:
            yield b"\n"
            await done.wait()

        who = f"{platform.node()}, since {time.strftime('%H:%M')}"
        holding = asyncio.create_task(
            self._shell.connection.run(
                self._shell.command(HELD, who=who),
                until_done(),
                lambda chunk: held.set() if b"held" in chunk else None,
            ),
            name="host lock",
        )
        waiting = asyncio.create_task(held.wait())
        try:
            await asyncio.wait({holding, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not held.is_set():
                raise _busy(self._shell, (await holding).err.decode(errors="replace").strip())
            yield
        finally:
            done.set()
            await cancel(waiting, holding)

    async def _is_ready(self) -> bool:
        output = await self._shell.run(
            'if [ -f "$home/ready" ] && [ -x "$home/.venv/bin/python" ]; then echo yes; fi',
            home=self._home,
        )
        return output.strip() == "yes"

    async def _bring_uv(self) -> str:
        """Upload the pinned uv for the server's architecture; returns its path on the server."""
        self._tell(HostTick(stage="uploading", words="uv"))
        report = self._report
        (wheel,) = await bring_wheels("uv", report.machine, report.libc, "3.11", self._hear)
        program = await asyncio.to_thread(_program, wheel)
        version = wheel.file.name.split("-")[1]
        target = f"{self._shell.base}/uv/{version}/uv"
        await self._bring([(program, target, await asyncio.to_thread(sha256_of, program))], 0o700)
        return target

    async def _bring_source(self) -> None:
        packed = await asyncio.to_thread(source_archive)
        target = f"{self._shell.base}/source/{packed.build}.tar.gz"
        await self._bring([(packed.file, target, packed.sha256)])
        await self._shell.run(
            'mkdir -p "$home" && tar -xzf "$packed" -C "$home"',
            what="unpack Atelier's source",
            home=self._home,
            packed=target,
        )

    async def _make_environment(self, uv: str) -> None:
        self._tell(HostTick(stage="installing", words="a Python environment"))
        known = self._report.python.partition(" ")[2]
        await self._shell.run(
            UV + 'if ! "$home/.venv/bin/python" -c "" 2>/dev/null; then\n'
            'rm -rf "$home/.venv"\n'
            '"$uv" --no-config venv --quiet --python "${known:-3.11}" "$home/.venv"; fi',
            what="create a Python environment",
            home=self._home,
            uv=uv,
            known=known,
        )

    async def _fill(self, uv: str) -> None:
        if await self._is_offline(uv):
            await self._fill_from_here(uv)
        else:
            await self._fill_from_index(uv)

    async def _is_offline(self, uv: str) -> bool:
        """Whether packages are uploaded instead of downloaded by the server. CPU builds of torch
        are not on PyPI, so `engine-cpu` is always uploaded unless the caller chose otherwise."""
        if self._offline is not None:
            return self._offline
        if self._report.engine == "engine-cpu":
            return True
        self._tell(HostTick(stage="surveying", words="access to the package index"))
        try:
            await self._shell.run(
                UV + "export UV_HTTP_TIMEOUT=10 UV_HTTP_RETRIES=1\n"
                '"$uv" pip install --quiet --python "$python" --dry-run --no-deps '
                '--require-hashes -r "$home/packaging/locks/pip.txt"',
                uv=uv,
                home=self._home,
                python=self._python,
            )
        except LaunchError:
            return True
        return False

    async def _fill_from_index(self, uv: str) -> None:
        """Install packages from the server's package index, checked against the locked hashes."""
        files = [f"{name}.txt" for name in LOCKS[self._report.engine]]
        if self._report.engine == "engine-cpu":
            files.append("torch.txt")
        lines = " ".join(f'-r "$home/packaging/locks/{file}"' for file in files)
        await self._installing(
            UV + f'"$uv" pip install --quiet --python "$python" --no-deps --require-hashes {lines}',
            uv,
        )

    async def _fill_from_here(self, uv: str) -> None:
        """Upload the wheels through the SSH connection and install them without a network."""
        report = self._report
        python = report.python.split(" ")[0] or "3.11"
        wheels = await bring_wheels(report.engine, report.machine, report.libc, python, self._hear)
        folder = f"{self._shell.base}/wheels"
        files = [(one.file, f"{folder}/{one.file.name}", one.sha256) for one in wheels]
        await self._bring(files)
        lines = "".join(
            f"{one.name} @ file://{folder}/{one.file.name} --hash=sha256:{one.sha256}\n"
            for one in wheels
        )
        await self._shell.run(
            'cat > "$home/wheels.txt"',
            lines.encode(),
            what="store the list of wheels",
            home=self._home,
        )
        await self._installing(
            UV + '"$uv" --no-config pip install --quiet --python "$python" --no-deps --offline '
            '--no-index --require-hashes -r "$home/wheels.txt"',
            uv,
        )

    async def _installing(self, script: str, uv: str) -> None:
        """Run an installation script and report the installed size meanwhile."""
        self._tell(HostTick(stage="installing", words="packages"))
        measuring = asyncio.create_task(self._look(), name="host look")
        try:
            await self._shell.run(
                script, what="install the packages", uv=uv, home=self._home, python=self._python
            )
        finally:
            await cancel(measuring)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            output = await self._shell.run(
                'du -sk "$base/cache/uv" "$home/.venv" | awk \'{n += $1} END {print n}\'',
                home=self._home,
            )
            done = min(int(output) * 1024, self._report.installed_bytes)
            total = self._report.installed_bytes
            self._tell(HostTick(stage="installing", words="packages", done=done, total=total))

    async def _try(self) -> None:
        """Import the main packages on the server, then mark the engine as complete."""
        self._tell(HostTick(stage="testing", words="the engine"))
        locks = LOCKS[self._report.engine]
        stamp = {
            name: sha256_of(checkout() / "packaging" / "locks" / f"{name}.txt") for name in locks
        }
        mark = {"id": self.id, "kind": self._report.engine, "at": time.time()}
        await self._shell.run(
            'cd "$home" && "$python" -c "$probe" && cat > .venv/atelier-installed.json &&'
            ' echo "$mark" > ready.new && sync ready.new && mv -f ready.new ready',
            json.dumps(stamp).encode(),
            what="start the installed engine",
            home=self._home,
            python=self._python,
            probe=PROBE,
            mark=json.dumps(mark),
        )

    async def _bring(self, files: list[tuple[Path, str, str]], mode: int = 0o600) -> None:
        total = sum(file.stat().st_size for file, _, _ in files)
        done = 0

        for file, target, sha256 in files:

            def sent(count: int, name: str = file.name) -> None:
                nonlocal done
                done += count
                self._tell(HostTick(stage="uploading", words=name, done=done, total=total))

            await upload_file(self._shell, file, target, sha256, sent, mode)

    def _hear(self, words: str, done: int, total: int) -> None:
        """Report the progress of wheel downloads to this machine."""
        self._tell(HostTick(stage="surveying", words=words, done=done, total=total))


async def roll_back(shell: Shell) -> str:
    """Switch the server to its previous engine; returns the engine's id. Raises LaunchError,
    Refused without one."""
    output = await shell.run('basename "$(readlink "$base/previous")"')
    before = output.strip()
    if not before:
        raise Refused.of("host.no_previous", "There is no previous engine on this server.")
    await shell.run(SWITCH, what="switch engines", id=before)
    return before


async def remove_all(shell: Shell) -> None:
    """Remove Atelier's base folder from the server, with engines, projects and runs. Raises
    LaunchError, Refused if the folder lacks Atelier's marker."""
    output = await shell.run(
        'if [ ! -e "$base" ]; then echo gone; elif [ -e "$base/$mark" ]; then echo ours; fi',
        mark=MARK,
    )
    if output.strip() == "gone":
        return
    if output.strip() != "ours":
        raise Refused.of(
            "host.folder_not_ours",
            f"{shell.base} on {shell.connection.server} was not created by Atelier: nothing "
            "was deleted.",
        )
    await shell.run('rm -rf "$base"', what="delete Atelier's folder")


def _program(wheel: Wheel) -> Path:
    """Extract the uv executable from its wheel; cached beside the wheels."""
    program = wheel.file.parents[1] / wheel.file.stem
    if not program.exists():
        scratch = program.with_suffix(".new")
        with zipfile.ZipFile(wheel.file) as packed:
            name = next(one for one in packed.namelist() if one.endswith("/scripts/uv"))
            with packed.open(name) as source, scratch.open("wb") as target:
                shutil.copyfileobj(source, target)
        move_into_place(scratch, program)
    return program


def _busy(shell: Shell, who: str) -> Refused:
    who = who or "another machine of yours"
    return Refused.of(
        "host.busy",
        f"Another installation is in progress on {shell.connection.server} (from {who}).",
        "Wait until the installation has finished, then try again.",
    )
