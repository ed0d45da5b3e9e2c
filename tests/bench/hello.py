"""Learning curve of the sample `hello`, and a control without reward information.

`python -m tests.bench.hello [--seeds 0 1 2] [--shuffled]`

Trains the sample on the starter model once per seed. With --shuffled the rewards of each group are
permuted among its trajectories before they become advantages: the same numbers without
information, so the reward must not change.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.client import EngineClient
from engine.launcher.local import find
from engine.protocol.events.run import RunFailed, RunFinished, StepFinished, ValidationFinished
from engine.protocol.requests.runs import StartRun
from engine.runtime import seeds
from engine.storage.samples import create_project


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--shuffled", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        create_project(workspace / "hello", "hello")
        mode = "shuffled" if arguments.shuffled else "plain"
        command = [sys.executable, "-m", "tests.bench.hello_engine", mode, folder]
        engine = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: ASYNC220
        assert engine.stdout is not None
        engine.stdout.readline()
        endpoint = await find(workspace)
        assert endpoint is not None
        async with EngineClient(endpoint.port, endpoint.token) as client:
            for seed in arguments.seeds:
                await train(client, workspace / "hello", seed, arguments.steps, mode)
            await client.shut_down()
        engine.wait()


async def train(client: EngineClient, project: Path, seed: int, steps: int, mode: str) -> None:
    started_at = time.monotonic()
    overrides = {"train.seed": seed, "train.steps": steps}
    while (await client.info()).living_runs:  # noqa: ASYNC110 - the engine is another process
        await asyncio.sleep(0.5)
    run = await client.start_run(StartRun(project=str(project), overrides=overrides))
    rewards, held_out = [], []
    async for event in client.events(run.id):
        if isinstance(event, StepFinished):
            rewards.append(event.metrics["reward/mean"])
        if isinstance(event, ValidationFinished) and event.reward:
            held_out.append(event.reward.mean)
        if isinstance(event, RunFailed):
            sys.exit(str(event.problem))
        if isinstance(event, RunFinished):
            break
    curve = " ".join(f"{reward:.2f}" for reward in rewards)
    seconds = time.monotonic() - started_at
    validation = " ".join(f"{reward:.2f}" for reward in held_out)
    print(f"{mode} seed {seed}: {curve}  validation {validation}  ({seconds:.0f} s)", flush=True)


def shuffle(rewards: list[float | None]) -> list[float | None]:
    """Return the rewards in random order, without information about the trajectories."""
    mixed = list(rewards)
    random.Random(seeds.derive(0, "shuffle", json.dumps(rewards))).shuffle(mixed)
    return mixed


if __name__ == "__main__":
    asyncio.run(main())
