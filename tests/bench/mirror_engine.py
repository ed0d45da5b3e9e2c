"""Home engine for tests.bench.follow that mirrors a run of a remote engine, which it starts."""

import asyncio
import sys
from pathlib import Path

from engine.cli.commands.serve import _say_ready
from engine.client import EngineClient
from engine.launcher import local
from engine.remote.mirror.mirror import Mirror
from engine.remote.mirror.replica import Replica
from engine.server import serve
from engine.server.composition import Services
from tests.bench.far_run import RUN


class MirrorServices:
    """Engine services that fill the mirror from their start."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._mirroring = asyncio.create_task(self._mirror())

    async def _mirror(self) -> None:
        far = await local.find_or_start(Path(sys.argv[1]), sys.executable)
        broadcast = self._services.broadcast
        replica = Replica(self._services.workspace / "bench" / "runs" / RUN, RUN)
        async with EngineClient(far.port, far.token) as client:
            try:
                mirror = Mirror(client, RUN, replica, lambda tick: broadcast.announce(RUN, tick))
                await mirror.run()
            finally:
                await client.shut_down()
                replica.close()


def compose_with_mirror(workspace: Path, token: str, port: int) -> Services:
    services = Services(workspace, token, port)
    mirrors.append(MirrorServices(services))
    return services


mirrors: list[MirrorServices] = []


def main() -> None:
    serve.Services = compose_with_mirror
    asyncio.run(serve.serve(Path(sys.argv[2]), _say_ready))


if __name__ == "__main__":
    main()
