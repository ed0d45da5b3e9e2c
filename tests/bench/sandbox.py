"""Cost of the sandbox: time of a rollout in it against a rollout without it.

`python -m tests.bench.sandbox [--rollouts 60] [--import openai] [--image IMAGE]`

One agent that returns at once, in a pool with a sandbox and in one without, a rollout of each in
turn. Prints the medians in milliseconds and their difference. With `--image`, a container of that
image is measured, too. `--import` names a module that the
agent imports, which makes its process larger to fork.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from engine.protocol.config.agent import AgentConfig
from engine.rollout.agents.processes import AgentPool, Attempt
from engine.rollout.sandbox.pool import agent_pool
from engine.runtime.closing import closing

AGENT = "import {module}\n\ndef rollout(scenario, model):\n    return 1.0\n"


async def measure(folder: Path, rollouts: int, image: str | None) -> dict[str, list[float]]:
    """Milliseconds of each rollout by kind of sandbox."""
    configs = [AgentConfig(), AgentConfig(sandbox="process")]
    configs += [AgentConfig(sandbox="container", image=image)] if image else []
    times: dict[str, list[float]] = {config.sandbox: [] for config in configs}
    attempt = Attempt({}, "http://127.0.0.1:9/v1", "key", "policy")
    async with AsyncExitStack() as stack:
        pools: dict[str, AgentPool] = {}
        for config in configs:
            pool = agent_pool(folder, config, folder / f"{config.sandbox}.log")
            pools[config.sandbox] = await stack.enter_async_context(closing(pool))
            await pool.start()
        for _ in range(rollouts):
            for kind, pool in pools.items():
                start_s = time.perf_counter()
                await pool.run(attempt)
                times[kind].append((time.perf_counter() - start_s) * 1000)
    return times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rollouts", type=int, default=60)
    parser.add_argument("--import", default="openai", dest="module")
    parser.add_argument("--image", help="with Python and the module of --import")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "agent.py").write_text(AGENT.format(module=arguments.module))
        times = asyncio.run(measure(Path(name), arguments.rollouts, arguments.image))
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    for kind, value in medians.items():
        print(f"sandbox = {kind}: {value:.1f} ms a rollout (median of {arguments.rollouts})")
    for kind in list(medians)[1:]:
        print(f"cost of sandbox = {kind}: {medians[kind] - medians['none']:.1f} ms")


if __name__ == "__main__":
    main()
