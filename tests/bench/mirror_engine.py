"""A home engine for tests.bench.follow that mirrors a run of a far engine, which it starts."""

import asyncio
import sys
from pathlib import Path

from engine.cli.commands.serve import _say_ready
from engine.client import EngineClient
from engine.launcher import local
from engine.remote.mirror.mirror import Mirror
from engine.remote.mirror.replica import Replica
from engine.server import serve
from engine.server.app import Application
from engine.server.auth import Guard
from tests.bench.far_run import RUN


class MirrorApplication(Application):
    """Fills the replica as soon as it serves."""

    def asgi(self, port: int) -> Guard:
        self._mirroring = asyncio.create_task(self._mirror())
        return super().asgi(port)

    async def _mirror(self) -> None:
        far = await local.find_or_start(Path(sys.argv[1]), sys.executable)
        replica = Replica(self.workspace / "bench" / "runs" / RUN, RUN)
        async with EngineClient(far.port, far.token) as client:
            try:
                await Mirror(
                    client, RUN, replica, lambda tick: self.broadcast.announce(RUN, tick)
                ).run()
            finally:
                await client.shut_down()
                replica.close()


def main() -> None:
    serve.Application = MirrorApplication  # type: ignore[misc]
    asyncio.run(serve.serve(Path(sys.argv[2]), _say_ready))


if __name__ == "__main__":
    main()
