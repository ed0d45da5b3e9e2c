"""Growth of the policy process's memory.

`python -m tests.bench.memory [STEPS]`

Samples and trains the tiny model for STEPS (default 2,000) steps in the policy process, like a run
does, and prints its resident memory after the warm-up and at the end.
"""

import asyncio
import random
import sys
import tempfile
from pathlib import Path

import psutil

from engine.bench.atelier import Atelier
from engine.bench.work import Shape, rewards
from tests.support.tiny_model import make_tiny_model

WARM_UP = 500


async def measure(steps: int, folder: Path) -> None:
    model = make_tiny_model(folder / "tiny")
    ours = await Atelier.start(model, folder, "float32")
    chance = random.Random(0)
    process, sizes = psutil.Process(ours.policy.pids[0]), []
    try:
        for step in range(steps):
            shape = Shape(chance.randint(8, 48), chance.randint(4, 24), 4, 2)
            prompts = [[chance.randrange(3, 200) for _ in range(shape.prompt)] for _ in range(2)]
            await ours.live(prompts, shape, rewards(shape, step))
            sizes.append(process.memory_info().rss)
            if step % (steps // 10) == 0:
                print(f"step {step}: {sizes[-1] / 2**20:.1f} MiB", flush=True)
    finally:
        await ours.close()
    after, last = max(sizes[:WARM_UP]), max(sizes[-WARM_UP:])
    print(
        f"{steps} steps: {after / 2**20:.1f} MiB early, {last / 2**20:.1f} MiB late "
        f"({last / after - 1:+.2%})"
    )


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(steps, Path(folder)))


if __name__ == "__main__":
    main()
