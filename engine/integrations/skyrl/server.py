"""SkyRL's server as a child process of this one."""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import httpx
import platformdirs

from engine.environments import python_of
from engine.hardware.doctor import card_lacks
from engine.hardware.gpus import read_gpus
from engine.protocol.base import Value
from engine.protocol.problems import PolicyError, Problem
from engine.protocol.requests.clusters import ClusterClient, SkyrlSettings
from engine.runtime.child import descendants, end_processes
from engine.runtime.variables import allowed_environment

LAUNCH = Path(__file__).with_name("launch.py")
CLIENT: ClusterClient = "tinker-json"
"""SDK that speaks the protocol of this version."""
START_S = 900.0
LOG_CHARS = 4000


class SkyrlPlan(Value):
    """Start of a server."""

    settings: SkyrlSettings
    model: Path
    """Folder of the base model."""
    state: Path
    """Folder for its database and checkpoints; a server that is started again continues there."""
    port: int
    """Port on 127.0.0.1."""
    environment: Literal["skyrl-cpu", "skyrl-gpu"] = "skyrl-cpu"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> list[str]:
        """Command-line options of SkyRL's server."""
        options = {
            "--base-model": self.model,
            "--backend": "jax",
            "--backend-config": json.dumps(backend_settings(self.settings)),
            "--checkpoints-base": self.state / "checkpoints",
            "--database-url": f"sqlite:///{self.state / 'server.db'}",
            "--port": self.port,
        }
        return [str(word) for pair in options.items() for word in pair]


def backend_settings(settings: SkyrlSettings) -> dict[str, int]:
    """Settings of SkyRL's JAX backend."""
    return {
        "tensor_parallel_size": settings.gpus,
        "max_lora_adapters": settings.adapters,
        "max_lora_rank": settings.most_rank,
        "sample_max_num_sequences": settings.sequences,
        "train_micro_batch_size": settings.micro_batch,
    }


def environment_here() -> Literal["skyrl-cpu", "skyrl-gpu"]:
    """Environment for this machine: with CUDA if it can be used."""
    return "skyrl-cpu" if card_lacks(read_gpus()) else "skyrl-gpu"


@contextlib.asynccontextmanager
async def skyrl_server(
    plan: SkyrlPlan, log: Path, on_start: Callable[[int], None] = lambda pid: None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Context manager that starts a server and yields its process when it answers; it ends with the
    block. Output goes to the end of file `log`; `on_start` receives the PID at once. Raises
    PolicyError, EnvironmentMissing."""
    python = await asyncio.to_thread(python_of, plan.environment)
    plan.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    life_read, life_write = os.pipe()
    try:
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(str(python), str(LAUNCH), str(life_read), *plan.options),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=plan.state,
                env=_environment(plan.environment),
                pass_fds=(life_read,),
                start_new_session=True,
            )
    finally:
        os.close(life_read)
    try:
        on_start(process.pid)
        await _ready(plan.address, process, log)
        yield process
    finally:
        family = descendants(process.pid)
        os.close(life_write)
        with contextlib.suppress(ProcessLookupError):  # the group has what an ended server left
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.to_thread(end_processes, family)


def _environment(name: str) -> dict[str, str]:
    """Variables of the server: nothing of the user's but what programs need; compiled kernels are
    kept in the user's cache."""
    kernels = Path(platformdirs.user_cache_dir("atelier")) / "jax"
    return allowed_environment(
        {
            "JAX_PLATFORMS": "cuda" if name == "skyrl-gpu" else "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(kernels),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "HF_HUB_OFFLINE": "1",
            "DO_NOT_TRACK": "1",
        }
    )


async def _ready(address: str, process: asyncio.subprocess.Process, log: Path) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + START_S
    async with httpx.AsyncClient(trust_env=False) as http:
        while loop.time() < end:
            if process.returncode is not None:
                raise PolicyError(_not_started("its process ended", log))
            with contextlib.suppress(httpx.TransportError):
                if (await http.get(f"{address}/api/v1/healthz", timeout=5.0)).is_success:
                    return
            await asyncio.sleep(0.25)
    raise PolicyError(_not_started(f"it was not ready after {START_S / 60:.0f} minutes", log))


def _not_started(why: str, log: Path) -> Problem:
    return Problem(
        code="cluster.not_started",
        message=f"SkyRL's server did not start: {why}.",
        hint="See its log.",
        where=str(log),
        detail=log.read_text(errors="replace")[-LOG_CHARS:],
    )


def free_port(wanted: int = 0) -> int:
    """Port on 127.0.0.1 without a listener: the wanted one if it has none, else another."""
    for port in (wanted, 0):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found: int = probe.getsockname()[1]
            return found
    raise AssertionError("the system gives a free port to whoever asks for any")
