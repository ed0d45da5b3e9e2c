"""Engine for tests.bench.hello: plain, or with rewards shuffled within each group."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.cli.commands.serve import _say_ready
from engine.protocol.config.algorithm import Advantage
from engine.reward.advantage import group
from engine.server.serve import serve
from tests.bench.hello import shuffle


def main() -> None:
    mode, workspace = sys.argv[1:3]
    if mode == "shuffled":
        exact = group.advantages

        def mixed(kind: Advantage, rewards: Sequence[float | None]) -> list[float | None]:
            return exact(kind, shuffle(list(rewards)))

        group.advantages = mixed
    asyncio.run(serve(Path(workspace), _say_ready))


if __name__ == "__main__":
    main()
