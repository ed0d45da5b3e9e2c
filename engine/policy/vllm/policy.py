"""Policy with a trainer process of the engine and a vLLM server as sampler.

Every update is published under a new adapter name and verified: server and trainer must return the
same log-probs of a fixed text, and a measurable change of the trainer must show in the server too.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from engine.policy import base
from engine.policy.logprob_gap import mean_gap, stale_or_different
from engine.policy.vllm.process import ServerPlace, ServerPlan
from engine.policy.vllm.sampler import VllmSampler
from engine.protocol.problems import PolicyError

CANARY_TOKENS = 128
MOST_CHECKED = 256
"""Maximum number of grammars that are known to compile."""


class VllmPolicy:
    """Policy with a trainer and a vLLM server."""

    def __init__(self, trainer: base.Policy, log: Path, place: ServerPlace) -> None:
        self._trainer, self._log, self._place = trainer, log, place
        self._scratch = Path(tempfile.mkdtemp(prefix="atelier-adapters-"))
        self._sampler: VllmSampler | None = None
        self._published = 0
        self._canary: list[int] = []
        self._trainer_logprobs: list[float] = []
        """Trainer's log-probs of the fixed text at the last publication; empty after a restore."""
        self._ends: dict[str, list[int]] = {}
        """End tokens by grammar, the oldest first."""
        self.version = 0
        self.on_restart: base.OnRestart | None = None

    @property
    def on_progress(self) -> base.Progress:
        return self._trainer.on_progress

    @on_progress.setter
    def on_progress(self, progress: base.Progress) -> None:
        self._trainer.on_progress = progress

    @property
    def away_s(self) -> float:
        return self._sampler.outages.seconds if self._sampler else 0.0

    @property
    def pids(self) -> list[int]:
        return [*self._trainer.pids, *(self._sampler.pids if self._sampler else [])]

    async def load(self, spec: base.PolicySpec) -> base.PolicyInfo:
        start_s = time.monotonic()
        spec = _in_one_precision(spec, self._place.cuda)
        info = self._info = await self._trainer.load(spec)
        context = spec.model.max_context
        plan = ServerPlan(
            model_path=spec.model_path,
            dtype=info.dtype,
            max_context=context,
            rank=spec.model.rank,
            cache_bytes=self._place.rows * context * info.cached_token_bytes,
            reads_images=info.reads_images,
            place=self._place,
        )
        self._sampler = await VllmSampler.start(plan, self._log)
        self._sampler.on_restart = self.on_restart
        update = {"seconds": time.monotonic() - start_s, "sampler": self._sampler.words}
        return info.model_copy(update=update)

    async def sample(self, request: base.SampleRequest) -> AsyncIterator[list[base.SampledToken]]:
        if request.grammar is not None:
            eos = await self.check_grammar(request.grammar)
        else:
            eos = [] if request.ignore_eos else self._info.eos_tokens
        async for tokens in self._served.sample(request, [*eos, *request.stop_tokens]):
            yield tokens

    async def check_grammar(self, grammar: str) -> list[int]:
        """Let the trainer compile a grammar before the server meets it: the trainer needs it too,
        bounds the time, and its error names the reason, while a failure in the server ends without
        one."""
        if grammar not in self._ends:
            ends = await self._trainer.check_grammar(grammar)
            if len(self._ends) >= MOST_CHECKED:
                del self._ends[next(iter(self._ends))]
            self._ends[grammar] = ends
        return self._ends[grammar]

    async def hold(self) -> None:
        await self._served.hold()

    async def go_on(self) -> None:
        await self._served.go_on()

    async def sampling(self) -> dict[str, float]:
        return await self._served.prompt_sharing()

    async def score(self, batch: base.ScoreBatch) -> list[base.Scores]:
        await self._rest()
        return await self._trainer.score(batch)

    async def features(self, items: list[base.TrainItem]) -> list[list[float]]:
        return await self._trainer.features(items)

    async def fit_preferences(
        self, features_ND: list[list[float]], pairs: list[base.Pair]
    ) -> base.PreferenceModel:
        return await self._trainer.fit_preferences(features_ND, pairs)

    async def forward_backward(self, batch: base.TrainBatch) -> dict[str, float]:
        await self._rest()
        return await self._trainer.forward_backward(batch)

    async def optim_step(self, step: base.AdamStep) -> dict[str, float]:
        return await self._trainer.optim_step(step)

    async def optim_reset(self) -> None:
        await self._trainer.optim_reset()

    async def publish(self, version: int) -> dict[str, float]:
        sampler = self._served
        self._published += 1
        name = f"step-{version}.{self._published}"
        before, self._trainer_logprobs = self._trainer_logprobs, await self._say()
        name, sampler_logprobs = await self._offer(name, before)
        await sampler.use(name)
        self.version = version
        metrics = {"publish_gap": mean_gap(sampler_logprobs, self._trainer_logprobs)}
        if before:
            metrics["publish_moved"] = mean_gap(before, self._trainer_logprobs)
        if sampler.switch_s:
            metrics["time_s/switch"], sampler.switch_s = sampler.switch_s, 0.0
        return metrics

    async def save(self, folder: Path) -> None:
        await self._trainer.save(folder)

    async def save_adapter(self, folder: Path) -> None:
        await self._trainer.save_adapter(folder)

    async def restore(self, folder: Path) -> None:
        self._trainer_logprobs = []
        await self._trainer.restore(folder)

    async def load_adapter(self, folder: Path) -> None:
        self._trainer_logprobs = []
        await self._trainer.load_adapter(folder)

    async def close(self) -> None:
        sampler, self._sampler = self._sampler, None
        await asyncio.gather(self._trainer.close(), *([sampler.close()] if sampler else []))
        await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)

    @property
    def _served(self) -> VllmSampler:
        if self._sampler is None:
            raise PolicyError.of("policy.not_loaded", "The policy process has loaded no model yet.")
        return self._sampler

    async def _rest(self) -> None:
        if self._place.sleep != "off":
            await self._served.rest(cache_only=self._place.sleep == "cache")

    async def _offer(self, name: str, before: Sequence[float]) -> tuple[str, list[float]]:
        """Load the adapter and verify that the server uses it; retried once. Returns its name at
        the server and the server's log-probs of the fixed text. Raises PolicyError."""
        problem = None
        for offered in (name, f"{name}.again"):
            folder = self._scratch / offered
            await self._trainer.save_adapter(folder)
            await self._served.offer(offered, folder)
            logprobs = await self._served.ask(lambda s, n=offered: s.logprobs(self._canary, n))  # type: ignore[misc]
            problem = stale_or_different(logprobs, self._trainer_logprobs, before, self._info.dtype)
            if problem is None:
                return offered, logprobs
            await self._served.take_back(offered)
        assert problem is not None
        raise PolicyError(problem)

    async def _say(self) -> list[float]:
        """Log-probs of the fixed text by the trainer; at first the server samples that text."""
        if not self._canary:
            start = self._info.eos_tokens[:1] or [1]
            request = base.SampleRequest(
                tokens=start, max_tokens=CANARY_TOKENS, ignore_eos=True, seed=0
            )
            parts = [part async for part in self.sample(request)]
            self._canary = start + [token.token for part in parts for token in part]
        item = base.TrainItem(tokens=self._canary, spans=[(1, len(self._canary))])
        return (await self._trainer.score(base.ScoreBatch(items=[item])))[0].logprobs


def _in_one_precision(spec: base.PolicySpec, cuda: bool) -> base.PolicySpec:
    """Spec with the precision of both sampler and trainer. On the CPU that is float32: vLLM's
    adapters are an order of magnitude slower in bfloat16 there, and the two agree to 1e-4 nats."""
    if spec.model.dtype != "auto" or cuda:
        return spec
    return spec.model_copy(update={"model": spec.model.model_copy(update={"dtype": "float32"})})
