"""SkyRL's server as a child process of this one."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import platformdirs

from engine.environments import python_of
from engine.protocol.base import Value
from engine.protocol.problems import PolicyError, Problem
from engine.protocol.requests.clusters import ClusterClient
from engine.runtime.child import descendants, end_processes
from engine.runtime.variables import allowed_environment

LAUNCH = Path(__file__).with_name("launch.py")
CLIENT: ClusterClient = "tinker-json"
"""SDK that speaks the protocol of this version."""
START_S = 900.0
LOG_CHARS = 4000


class SkyrlPlan(Value):
    """Settings of a server."""

    model: Path
    """Folder of the base model."""
    state: Path
    """Folder for its database and checkpoints; a server that is started again continues there."""
    port: int = 0
    """Port on 127.0.0.1; 0 chooses a free one."""
    adapters: int = 4
    """Adapters in memory, one of them the untrained model."""
    most_rank: int = 32
    sequences: int = 16
    """Maximum number of sequences that are sampled together."""
    micro_batch: int = 8
    """Sequences per forward and backward pass."""


@dataclass(frozen=True)
class SkyrlServer:
    """Running server."""

    address: str
    process: asyncio.subprocess.Process

    async def ended(self) -> None:
        """Wait until the server has ended."""
        await self.process.wait()


@contextlib.asynccontextmanager
async def skyrl_server(plan: SkyrlPlan, log: Path) -> AsyncIterator[SkyrlServer]:
    """Context manager that starts a server and yields it when it answers; it ends with the block.
    Output goes to the end of file `log`. Raises PolicyError, EnvironmentMissing."""
    python = await asyncio.to_thread(python_of, "skyrl-cpu")
    plan.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    port = plan.port or _free_port()
    life_read, life_write = os.pipe()
    try:
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *_command(python, plan, port, life_read),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=plan.state,
                env=_environment(),
                pass_fds=(life_read,),
                start_new_session=True,
            )
    finally:
        os.close(life_read)
    address = f"http://127.0.0.1:{port}"
    try:
        await _ready(address, process, log)
        yield SkyrlServer(address, process)
    finally:
        family = descendants(process.pid)
        os.close(life_write)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await asyncio.to_thread(end_processes, family)


def _command(python: Path, plan: SkyrlPlan, port: int, life: int) -> list[str]:
    backend = {
        "max_lora_adapters": plan.adapters,
        "max_lora_rank": plan.most_rank,
        "sample_max_num_sequences": plan.sequences,
        "train_micro_batch_size": plan.micro_batch,
    }
    options = {
        "--base-model": plan.model,
        "--backend": "jax",
        "--backend-config": json.dumps(backend),
        "--checkpoints-base": plan.state / "checkpoints",
        "--database-url": f"sqlite:///{plan.state / 'server.db'}",
        "--port": port,
    }
    words = (str(word) for pair in options.items() for word in pair)
    return [str(python), str(LAUNCH), str(life), *words]


def _environment() -> dict[str, str]:
    """Variables of the server: nothing of the user's but what programs need; compiled kernels are
    kept in the user's cache."""
    kernels = Path(platformdirs.user_cache_dir("atelier")) / "jax"
    return allowed_environment(
        {
            "JAX_PLATFORMS": "cpu",
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
