"""Side-by-side chat: model processes that stay loaded between questions."""

import asyncio
import contextlib
import hashlib
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.evaluation.arena import Chat, without_judge
from engine.evaluation.contestants import check_adapter
from engine.evaluation.provider_models import Providers
from engine.hardware.forecast import PROGRAM_BYTES
from engine.models.file_checks import shape_counts
from engine.policy.base import Policy
from engine.policy.start import in_one_process, policy_spec, start_policy
from engine.protocol.config.project import ModelConfig, ProjectConfig
from engine.protocol.config.validation import changed_config
from engine.protocol.problems import Refused
from engine.protocol.records.runs import Scenario, Trajectory
from engine.protocol.requests.arena import ArenaTicked, AskArena
from engine.protocol.requests.evaluation import Contestant
from engine.reward.advantage.group import group_summary
from engine.rollout.agents.processes import AgentPool, Agents
from engine.rollout.images import RunImages
from engine.rollout.rendering.chat import open_chat
from engine.rollout.rollout import RemoteStage, RolloutPlace, Stage, roll_out
from engine.rollout.sandbox.pool import agent_pool
from engine.runtime.closing import cancel, closing
from engine.runtime.seeds import derive
from engine.server.services.runs.workers import RunResources
from engine.storage.project import load_config, load_scenarios
from engine.storage.run_folder.run import Run
from engine.trust.projects import require_run_trust

UNLOAD_AFTER_S = 180.0
"""Seconds after its last response until a model is unloaded."""
LEAST_CONTEXT = 2048
"""Minimum context length of a chat in tokens; the project's limit applies if it is larger."""
ROOM = 1.3
"""Multiple of the model's memory that must be free while a run is active."""
TITLE_CHARS = 80


@dataclass
class LoadedModel:
    """Loaded base model and its current adapter."""

    policy: Policy
    adapter: str
    untrained: Path
    """Initial adapter of the base model, which has no effect."""
    used: float = 0.0


class ArenaService:
    """Side-by-side chat, one turn at a time. Base models are loaded once; adapters are swapped."""

    def __init__(self, resources: RunResources) -> None:
        self._resources = resources
        self._lock = asyncio.Lock()
        self._loaded: dict[str, LoadedModel] = {}
        self._pools: list[AgentPool] = []
        self._unloading: asyncio.Task[None] | None = None

    @property
    def pids(self) -> list[int]:
        return [pid for one in self._loaded.values() for pid in one.policy.pids] + [
            pid for pool in self._pools for pid in pool.pids
        ]

    async def ask(
        self, run: Run, request: AskArena, contestants: list[Contestant], crowded: bool
    ) -> AsyncGenerator[ArenaTicked, None]:
        """Let the contestants answer in turn; yields their text as it is generated, and stores each
        trajectory in the arena's `run`. `crowded`: a training run is active on this machine. Raises
        errors of policy, provider and store, and Refused if an agent or provider is used in an
        untrusted project."""
        if not request.chats or any(one.kind == "provider" for one in contestants):
            await asyncio.to_thread(require_run_trust, run.folder)
        async with self._lock:
            step = run.reader.last_step("validation") + 1
            names = [one.name for one in contestants]
            yield ArenaTicked(kind="begun", run_id=run.spec.id, names=names)
            attempts = []
            for place, one in enumerate(contestants):
                async with contextlib.aclosing(
                    self._answer(run, request, one, step, place, crowded)
                ) as ticks:
                    async for tick in ticks:
                        if tick.trajectory:
                            await run.writer.add_trajectory(tick.trajectory)
                            attempts.append(tick.trajectory)
                        yield tick
            group = group_summary(run.config.train.algorithm.advantage, attempts)
            await run.writer.add_group(group)
            yield ArenaTicked(kind="stored", run_id=run.spec.id, group=group)

    async def unload_idle(self) -> None:
        """Unload all models to free memory for a run; does nothing while a response is being
        generated."""
        if not self._lock.locked():
            await self._unload()

    async def close(self) -> None:
        if self._unloading:
            self._unloading.cancel()
        async with self._lock:
            await self._unload()

    async def _answer(
        self,
        run: Run,
        request: AskArena,
        contestant: Contestant,
        step: int,
        place: int,
        crowded: bool,
    ) -> AsyncGenerator[ArenaTicked, None]:
        """Yield the text of the contestant with index `place` as it is generated, then its
        trajectory in `step` of the arena's run."""
        texts: asyncio.Queue[str | None] = asyncio.Queue()

        async def attempt() -> Trajectory:
            try:
                async with self._stage(run, request, contestant, place, texts, crowded) as stage:
                    scenario = await asyncio.to_thread(_scenario, run, request, place)
                    where = RolloutPlace("validation", step, 0, place)
                    return await roll_out(stage, where, scenario, derive(request.seed, "arena"))
            finally:
                texts.put_nowait(None)

        task = asyncio.create_task(attempt(), name=f"arena {contestant.name}")
        try:
            while (text := await texts.get()) is not None:
                yield ArenaTicked(kind="said", place=place, text=text)
            yield ArenaTicked(kind="ended", place=place, trajectory=await task)
        finally:
            await cancel(task)

    @contextlib.asynccontextmanager
    async def _stage(
        self,
        run: Run,
        request: AskArena,
        contestant: Contestant,
        place: int,
        texts: "asyncio.Queue[str | None]",
        crowded: bool,
    ) -> AsyncIterator[Stage | RemoteStage]:
        resources = self._resources
        config = _settings(run.project, request, contestant)
        async with self._agents(run, request, place, texts) as pool:
            shared = (resources.gateway, resources.base_url, pool)
            if contestant.kind == "provider":
                access = resources.credentials.access(run.spec)
                async with closing(
                    await Providers.start(run, [contestant.model], access)
                ) as providers:
                    remote = providers.model(contestant.model)
                    yield RemoteStage(config, remote, *shared, contestant.name)
                return
            policy = await self._policy_for(run, contestant, config.model, crowded)
            async with open_chat(Path(contestant.model_path), config.model) as chat:
                images = RunImages(chat, run.folder, config.model.max_context)
                yield Stage(config, chat, policy, *shared, None, contestant.name, images=images)

    @contextlib.asynccontextmanager
    async def _agents(
        self, run: Run, request: AskArena, place: int, texts: "asyncio.Queue[str | None]"
    ) -> AsyncIterator[Agents]:
        """Agent of one response: the person's chat, or the project's agent."""
        if request.chats:
            messages = request.chats[place if len(request.chats) > 1 else 0]
            limits = (request.temperature, request.max_tokens)
            yield Chat(messages, *limits, texts.put_nowait, request.tools)
            return
        pool = agent_pool(run.project, load_config(run.project).agent, run.log_file)
        self._pools.append(pool)
        try:
            await pool.start()
            yield pool
        finally:
            await asyncio.shield(pool.close())
            self._pools.remove(pool)

    async def _policy_for(
        self, run: Run, contestant: Contestant, model: ModelConfig, crowded: bool
    ) -> Policy:
        """Policy with the contestant's weights, loaded if necessary. Raises Refused if memory is
        short for it while `crowded` (a run is active)."""
        adapter = f"{model.rank} {model.alpha} {model.adapt_experts}"
        name = f"{contestant.model_path} {adapter} {model.dtype}"
        loaded = self._loaded.get(name)
        if loaded is None:
            if crowded:
                _refuse_without_room(contestant)
            place = run.folder / f"untrained-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
            loaded = self._loaded[name] = await _load(run, contestant, model, place)
        try:
            if loaded.adapter != contestant.sha256:
                folder = loaded.untrained
                if contestant.adapter:
                    folder = await asyncio.to_thread(check_adapter, run.project, contestant)
                await loaded.policy.load_adapter(folder)
                await loaded.policy.publish(contestant.step)
                loaded.adapter = contestant.sha256
        except BaseException:
            del self._loaded[name]
            await asyncio.shield(loaded.policy.close())
            raise
        loaded.used = time.monotonic()
        if self._unloading is None or self._unloading.done():
            self._unloading = asyncio.create_task(self._unload_later(), name="arena")
        return loaded.policy

    async def _unload_later(self) -> None:
        while self._loaded:
            await asyncio.sleep(UNLOAD_AFTER_S / 10)
            last = max((one.used for one in self._loaded.values()), default=0.0)
            if time.monotonic() - last > UNLOAD_AFTER_S:
                await self.unload_idle()

    async def _unload(self) -> None:
        loaded, self._loaded = list(self._loaded.values()), {}
        await asyncio.gather(*(loaded.policy.close() for loaded in loaded))


async def _load(run: Run, contestant: Contestant, model: ModelConfig, place: Path) -> LoadedModel:
    """Load a base model; its untrained adapter is saved to `place`, replacing an earlier one."""
    folder, config = Path(contestant.model_path), in_one_process(run.config)
    policy = await start_policy(config, folder, run.log_file, contestant.model)
    try:
        await policy.load(policy_spec(config, folder, model, seed=0))
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
        place.mkdir()
        await policy.save(place)
        await policy.publish(0)
    except BaseException:
        await asyncio.shield(policy.close())
        raise
    return LoadedModel(policy, "", place / "adapter")


def _settings(project: Path, request: AskArena, contestant: Contestant) -> ProjectConfig:
    """Settings of the project without a judge; for a chat, with a long enough context."""
    config = without_judge(load_config(project))
    if not request.chats:
        return config
    shape = contestant.shape or config.model
    context = max(shape.max_context, LEAST_CONTEXT)
    return changed_config(
        config.model_copy(update={"model": shape}),
        {"model.max_context": context, "train.max_tokens": request.max_tokens},
    )


def _scenario(run: Run, request: AskArena, place: int) -> Scenario:
    """Scenario of the chat or of the project. Raises Refused for an unknown id."""
    if request.chats:
        chat = request.chats[place if len(request.chats) > 1 else 0]
        title = str(chat[-1].get("content", ""))[:TITLE_CHARS] if chat else ""
        return Scenario(id="chat", title=title, data={"messages": chat})
    config = load_config(run.project)
    for split in ("validation", "train"):
        for one in load_scenarios(run.project, config, split):  # type: ignore[arg-type]
            if one.id == request.scenario:
                return one
    raise Refused.of("arena.no_scenario", f"The project has no scenario {request.scenario}.")


def _refuse_without_room(contestant: Contestant) -> None:
    parameters = shape_counts(Path(contestant.model_path))["parameters"]
    need = ROOM * (parameters * 4 + PROGRAM_BYTES)
    free = psutil.virtual_memory().available
    if free < need:
        raise Refused.of(
            "arena.no_room",
            f"A run is active, and {contestant.model} needs {need / 1e9:.1f} GB of memory; "
            f"{free / 1e9:.1f} GB are free.",
            "Pause or stop the run, or wait until it has finished.",
        )
