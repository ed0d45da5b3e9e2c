"""Check that trains a sample for a few steps with a real engine process, as `train` does, and
measures seconds by phase, tokens, shares of the peak, and GPU memory against the forecast."""

import asyncio
import random
import statistics
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from engine.bench.gpu.report import NONE, Job, Outcome
from engine.bench.gpu.run_tables import tables
from engine.client import EngineClient
from engine.hardware.devices import cards_of
from engine.hardware.gpus import open_gpu_reader
from engine.hardware.memory_plan import vram_plan
from engine.launcher.local import start
from engine.protocol.events.run import (
    FINAL,
    CallClosed,
    Event,
    PolicyLoaded,
    RunFailed,
    RunFinished,
    StepFinished,
    UnknownEvent,
)
from engine.protocol.records.judging import JudgeOption
from engine.protocol.records.machine.hardware import VramPlan
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.runs import StartRun
from engine.storage.project import load_config
from engine.storage.samples import create_project

SIZES = {
    "hello": {"train.steps": 5, "train.groups": 8, "train.group_size": 8},
    "game_2048": {"train.steps": 4, "train.groups": 6, "train.group_size": 8},
}
QUICK = {"train.steps": 2, "train.groups": 2, "train.group_size": 4}
SHORT = {"train.validate_every": 0, "scenarios.validation": "", "train.checkpoint_every": 100}
"""Settings that disable validation, since only steps are measured."""
TIES = """

_sample = rollout


async def rollout(scenario, model):
    result = await _sample(scenario, model)
    result["reward"] += 0.001 * __import__("random").random()
    return result
"""
"""Code appended to the sample's agent. It adds noise to rewards, because a model that always gives
the same answer would have no signal, and nothing would be trained."""
TIES_NOTE = "Random noise up to 0.001 makes the rewards of every group differ"
IN_TABLES = ("model.name", "backend.trainer", "backend.sampler", "backend.weights")
"""Settings that the tables already show."""
RUBRIC = "A good answer says maybe. No is worse, yes is worse still, anything else is worthless.\n"
LOOK_S = 0.1
CLOSING_S = 30


@dataclass
class RunOutcome:
    """Events and peak memory of a run."""

    events: list[Event | UnknownEvent] = field(default_factory=list)
    log: str = ""
    held_bytes: int | None = None
    """Additional memory in bytes on all GPUs of the run; None without a GPU."""
    forecast: VramPlan | None = None

    @property
    def steps(self) -> list[StepFinished]:
        return [event for event in self.events if isinstance(event, StepFinished)]

    def all(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


async def run(job: Job, say: Callable[[str], None]) -> Outcome:
    """Train a few steps of the sample project that the job names; `say` receives progress. Fails if
    the run fails, nothing is trained, or a rollout is unscored."""
    workspace = Path(job.scratch) / "workspace"
    project = workspace / job.arguments["sample"]
    overrides = settings(job)
    create_project(project, job.arguments["sample"])
    agent = project / "agent.py"
    agent.write_text(agent.read_text() + TIES)
    async with own_engine(workspace) as client:
        if job.arguments.get("judged"):
            judge = await _judge(client)
            if judge is None:
                return Outcome(
                    state="skipped",
                    words="No judge was found on this machine: start an OpenAI-compatible "
                    "server (Ollama, llama.cpp, vLLM) and repeat the check. This check never uses "
                    "paid providers.",
                )
            (project / "rubric.md").write_text(RUBRIC)
            overrides |= _judged_by(judge)
        made = await follow(client, project, overrides, say)
    return outcome(job, overrides, made)


def settings(job: Job) -> dict[str, Any]:
    """Return the changes that the job makes to its sample project's settings, by dotted key."""
    sample = job.arguments["sample"]
    backend = {f"backend.{key}": job.arguments[key] for key in ("trainer", "sampler", "weights")}
    model = {"model.name": job.model, "model.max_context": 512}
    found = {**model, **backend, **SHORT, **(QUICK if job.quick else SIZES[sample])}
    return found | ({"train.warmup": None} if job.quick and sample == "game_2048" else {})


@asynccontextmanager
async def own_engine(workspace: Path) -> AsyncIterator[EngineClient]:
    """Start an engine on this workspace with the current Python interpreter, and shut it down at
    the end of the block: at once after an exception, otherwise when its active runs have ended or
    `CLOSING_S` seconds have passed."""
    endpoint = await start(workspace, sys.executable)
    process = psutil.Process(endpoint.pid)
    async with EngineClient(endpoint.port, endpoint.token) as client:
        try:
            yield client
            for _ in range(CLOSING_S * 10):  # a run whose last event is out is still being closed
                if not (await client.info()).living_runs:
                    break
                await asyncio.sleep(0.1)
        finally:
            await client.shut_down()
    await asyncio.to_thread(psutil.wait_procs, [process], timeout=CLOSING_S)


async def follow(
    client: EngineClient, project: Path, overrides: dict[str, Any], say: Callable[[str], None]
) -> RunOutcome:
    """Start a run with `overrides` (by dotted key), report each step to `say`, and return events,
    log and peak GPU memory when it has ended."""
    config = load_config(project, overrides)
    cards = cards_of(config.backend)
    made = RunOutcome(forecast=vram_plan(config, Path(config.model.name), cards))
    key = random.randbytes(8).hex()
    with card_memory([card.uuid for card in cards]) as most:
        summary = await client.start_run(
            StartRun(project=str(project), overrides=overrides, key=key)
        )
        async with aclosing(client.events(summary.id)) as events:
            async for event in events:
                if event.seq is not None:
                    made.events.append(event)
                if isinstance(event, StepFinished):
                    say(f"step {event.step} of {config.train.steps}")
                if isinstance(event, FINAL) and await _ended(client, summary):
                    break
    made.held_bytes = most() if cards else None
    made.log = await client.log(summary.id)
    return made


async def _ended(client: EngineClient, summary: RunSummary) -> bool:
    return (await client.run(summary.id)).state not in ACTIVE_STATES


@contextmanager
def card_memory(uuids: Sequence[str]) -> Iterator[Callable[[], int]]:
    """Yield a function that returns the peak bytes used on the GPUs with these `uuids` above those
    used at the start. Counts all programs, since the driver does not identify them in a
    container."""
    most, over = [0], threading.Event()

    def held(look: Callable[[], Sequence[Any]]) -> int:
        return sum(card.used_bytes or 0 for card in look() if card.uuid in uuids)

    def watch() -> None:
        with open_gpu_reader() as look:
            if look is None:
                return
            before = held(look)
            while not over.wait(LOOK_S):
                most[0] = max(most[0], held(look) - before)

    watcher = threading.Thread(target=watch, name="card memory")
    if uuids:
        watcher.start()
    try:
        yield lambda: most[0]
    finally:
        over.set()
        if uuids:
            watcher.join()


async def _judge(client: EngineClient) -> JudgeOption | None:
    """Judge model on this machine; providers on the network are not used."""
    return next((option for option in await client.judges() if option.where), None)


def _judged_by(judge: JudgeOption) -> dict[str, Any]:
    return {
        "judge.enabled": True,
        "judge.models": [judge.model],
        "judge.base_url": judge.base_url,
        "judge.passes": 1,
        "judge.canary_every": 0,
        "judge.price_prompt": 0.0,
        "judge.price_completion": 0.0,
    }


def outcome(job: Job, overrides: dict[str, Any], made: RunOutcome) -> Outcome:
    trained = [step for step in made.steps if not step.skipped]
    figures = _figures(trained, made)
    loaded = made.all(PolicyLoaded)
    facts = {
        "trainer": f"{job.arguments['trainer']}, {loaded[-1].dtype}" if loaded else NONE,
        "sampler": (loaded[-1].sampler or "torch") if loaded else NONE,
        "weights": job.arguments["weights"],
        "settings": ", ".join(f"{k} = {v}" for k, v in overrides.items() if k not in IN_TABLES),
    }
    state, words = "passed", f"{len(trained)} steps, {_median(trained, 'time_s/step'):.2f} s each."
    end = made.events[-1] if made.events else None
    if isinstance(end, RunFailed):
        state, words = "failed", f"The run failed at step {end.step}: {end.problem}"
    elif not isinstance(end, RunFinished):
        state, words = "failed", "The run was stopped before it finished."
    elif not trained:
        reason = made.steps[-1].reason if made.steps else "no step was finished"
        state, words = "failed", f"Nothing was trained: {reason}"
    elif figures["unscored"]:
        state, words = "failed", f"{figures['unscored']:.0f} rollouts were unscored."
    name = f"{job.arguments['sample']}, {job.arguments['trainer']}/{job.arguments['sampler']}"
    name += "" if facts["weights"] == "full" else f" {facts['weights']}"
    name += ", judged" if job.arguments.get("judged") else ""
    return Outcome(
        state=state,  # type: ignore[arg-type]
        words=words,
        figures=figures,
        facts=facts,
        tables=tables(name, facts, figures, TIES_NOTE) if trained else [],
        detail=made.log[-6000:] if state == "failed" else "",
    )


MEDIANS = {
    "step_s": "time_s/step",
    "rollout_s": "time_s/rolling_out",
    "train_s": "time_s/training",
    "publish_s": "time_s/publishing",
    "switch_s": "time_s/switch",
    "sampled_tokens_per_s": "tokens_per_s/sample",
    "trained_tokens_per_s": "tokens_per_s/train",
    "goodput_train_share": "goodput/train",
    "hardware_train_share": "hardware/train",
    "goodput_sample_share": "goodput/sample",
    "hardware_sample_share": "hardware/sample",
}
LARGEST = {"logprob_gap_max_nats": "logprob_gap/max", "publish_gap_nats": "publish_gap"}


def _figures(trained: Sequence[StepFinished], made: RunOutcome) -> dict[str, float]:
    """Medians over all steps but the first, which compiles and allocates and is listed
    separately."""
    later = trained[1:] or trained
    found = {
        name: _median(later, key)
        for name, key in MEDIANS.items()
        if any(key in step.metrics for step in later)
    }
    for name, key in LARGEST.items():
        if values := [step.metrics[key] for step in trained if key in step.metrics]:
            found[name] = max(values)
    found["unscored"] = sum(step.metrics.get("unscored", 0.0) for step in made.steps)
    found["steps"] = float(len(trained))
    if trained:
        found["first_step_s"] = trained[0].metrics["time_s/step"]
        found["reward_first"] = trained[0].metrics["reward/mean"]
        found["reward_last"] = trained[-1].metrics["reward/mean"]
    if loaded := made.all(PolicyLoaded):
        found["load_s"] = loaded[-1].seconds
    if calls := [call for call in made.all(CallClosed) if call.problem is None]:
        found["judge_call_s"] = statistics.median(call.seconds for call in calls)
        found["judge_calls"] = float(len(calls))
    return found | _memory(made)


def _memory(made: RunOutcome) -> dict[str, float]:
    """Used and forecast memory of all GPUs of the run; empty without a GPU."""
    if made.held_bytes is None:
        return {}
    found = {"held_bytes": float(made.held_bytes)}
    if made.forecast:
        forecast = float(sum(card.peak_bytes for card in made.forecast.cards))
        found |= {"forecast_bytes": forecast, "held_share": made.held_bytes / forecast}
    return found


def _median(steps: Sequence[StepFinished], key: str) -> float:
    values = [step.metrics[key] for step in steps if key in step.metrics]
    return statistics.median(values) if values else 0.0
