"""Learning curve of the sample `hello` from human labels only.

`python -m tests.bench.labelled [--seeds 0] [--steps 15]`

The agent returns no reward and there is no judge: every trajectory is unscored until the review,
in which a script scores each trajectory by its word. The printed rewards are those labels;
validation is unscored.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from engine.client import EngineClient
from engine.launcher.local import find
from engine.protocol.events.run import ReviewOpened, RunFailed, RunFinished, StepFinished
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.runs import Command, StartRun, TrajectoryQuery
from engine.storage.samples import create_project

WORTH = {"yes": 0.5, "no": 0.75, "maybe": 1.0}
SETTINGS = {"train.review_every": 1, "train.review_timeout_s": 600, "train.validate_every": 0}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        project = workspace / "hello"
        create_project(project, "hello")
        agent = (project / "agent.py").read_text()
        (project / "agent.py").write_text(agent.split("    word =")[0])
        command = [sys.executable, "-m", "tests.bench.hello_engine", "plain", folder]
        engine = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: ASYNC220
        assert engine.stdout is not None
        engine.stdout.readline()
        endpoint = await find(workspace)
        assert endpoint is not None
        async with EngineClient(endpoint.port, endpoint.token) as client:
            for seed in arguments.seeds:
                await train(client, project, seed, arguments.steps)
            await client.shut_down()
        engine.wait()


async def train(client: EngineClient, project: Path, seed: int, steps: int) -> None:
    started_at = time.monotonic()
    while (await client.info()).living_runs:  # noqa: ASYNC110 - the engine is another process
        await asyncio.sleep(0.5)
    overrides = {**SETTINGS, "train.seed": seed, "train.steps": steps}
    run = await client.start_run(StartRun(project=str(project), overrides=overrides))
    rewards, labels = [], 0
    async for event in client.events(run.id):
        if isinstance(event, ReviewOpened):
            labels += await label_groups(client, run.id, event.step)
            await client.command(run.id, Command(action="reviewed"))
        if isinstance(event, StepFinished):
            rewards.append(event.metrics["reward/mean"])
        if isinstance(event, RunFailed):
            sys.exit(str(event.problem))
        if isinstance(event, RunFinished):
            break
    curve = " ".join(f"{reward:.2f}" for reward in rewards)
    seconds = time.monotonic() - started_at
    print(f"labelled seed {seed}: {curve}  ({labels} labels, {seconds:.0f} s)", flush=True)


async def label_groups(client: EngineClient, run_id: str, step: int) -> int:
    """Add a label to each group of the step; return the number of labels."""
    page = await client.groups(run_id, TrajectoryQuery(split="train", step=step))
    for group in page.items:
        siblings = await client.siblings(run_id, "train", step, group.group)
        words = tuple(_score(one) for one in siblings.trajectories)
        label = Label(id=uuid.uuid4().hex, step=step, group=group.group, words=words)
        await client.add_label(run_id, label)
    return len(page.items)


def _score(one: Trajectory) -> Word:
    word = one.messages[-1].content.strip().lower().rstrip(".!")
    return Word(kind="score", trajectory_id=one.id, value=WORTH.get(word, 0.0))


if __name__ == "__main__":
    asyncio.run(main())
