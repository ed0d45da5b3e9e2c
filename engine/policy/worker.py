"""Torch policy of the engine: the `Policy` interface over its child process."""

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.environments import python_of
from engine.policy import base
from engine.policy.rows import pack_rows, unpack_rows
from engine.protocol.problems import AtelierError, PolicyError, RolloutError
from engine.runtime.child import Child, Launch, Process, start_program
from engine.runtime.paths import ISOLATED, ROOT
from engine.runtime.timeouts import Outages

KEPT_PAGES = {
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""glibc settings that reuse the memory of earlier steps; new pages cost a tenth of a step."""
VARIABLES = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "GOMP_SPINCOUNT": "2000",  # for ever starves agents and engine, never halves the speed
    **KEPT_PAGES,
}
"""Environment variables of every policy process."""
peak_rates: dict[tuple[str, ...], tuple[float, float]] = {}
"""Peak rates of this machine by precision, visible GPUs and program, measured by the first policy
with these values."""
TORCH = (sys.executable, "-m", "engine.policy.torch.serve")


async def unsloth_program(cuda: bool) -> tuple[str, ...]:
    """Command that starts the policy process with Unsloth of the engine's environment; if that has
    none and `cuda` is False, with Unsloth of its CPU environment. Raises PolicyError,
    EnvironmentMissing."""
    python = sys.executable
    if importlib.util.find_spec("unsloth") is None:
        if cuda:
            raise PolicyError.of(
                "trainer.not_installed",
                "This engine has no Unsloth.",
                "Install the GPU engine under Settings or with `atelier environments install "
                "engine-gpu`, or set backend.trainer to torch.",
                where="backend.trainer",
            )
        python = str(await asyncio.to_thread(python_of, "unsloth-cpu"))
    return (python, "-P", str(ISOLATED), "engine.policy.unsloth")


@contextlib.contextmanager
def errors_of_requests() -> Iterator[None]:
    """Convert errors of a request's grammar or images to RolloutError: they end a request, not the
    run."""
    try:
        yield
    except AtelierError as error:
        if error.problem.code.startswith((base.GRAMMAR_ERRORS, base.IMAGE_ERRORS)):
            raise RolloutError(error.problem) from error
        raise


class TorchPolicy:
    """Policy in one child process. Create it with `start`, end it with `close`."""

    def __init__(self, child: Child, base_name: str, setup: tuple[str, ...] = ()) -> None:
        """`setup` identifies hardware and program, for the cache of peak rates."""
        self._child, self._setup = child, setup
        self._base_name = base_name
        self._held, self._holding = Outages(), contextlib.ExitStack()
        self.version = 0
        self.on_progress: base.Progress = lambda done, total: None
        self.on_restart: base.OnRestart | None = None

    @classmethod
    async def start(
        cls,
        log: Path,
        base_name: str,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = TORCH,
        start: Callable[[Launch], Awaitable[Process]] = start_program,
    ) -> "TorchPolicy":
        """Start the policy process with output to `log`. `base_name` is the name of the base model
        in saved adapters, `environment` has additional variables, and `start` starts the command
        `program`."""
        variables = {**VARIABLES, **(environment or {})}
        child = await Child.spawn(
            "policy", [*program], cwd=ROOT, log=log, environment=variables, start=start
        )
        cards = variables.get("CUDA_VISIBLE_DEVICES", "")
        return cls(child, base_name, (cards, *program))

    @property
    def away_s(self) -> float:
        return self._held.seconds  # a worker that is gone ends the step

    @property
    def pids(self) -> list[int]:
        return [self._child.pid]

    async def peak_bytes(self) -> int | None:
        """Peak GPU memory allocated by torch, in bytes; None without a GPU."""
        found: int | None = (await self._child.ask("memory"))["peak_bytes"]
        return found

    async def load(self, spec: base.PolicySpec) -> base.PolicyInfo:
        place = (spec.model.dtype, *self._setup)
        known = spec.model_copy(update={"limits": spec.limits or peak_rates.get(place)})
        info = base.PolicyInfo.model_validate(
            await self._child.ask("load", spec=known.model_dump())
        )
        if info.peak_flops and info.bandwidth:
            peak_rates[place] = info.peak_flops, info.bandwidth
        return info

    async def sample(self, request: base.SampleRequest) -> AsyncIterator[list[base.SampledToken]]:
        with errors_of_requests():
            async for part in self._child.stream("sample", request=request.model_dump()):
                if "tokens" in part:
                    yield [
                        base.SampledToken(t, p, [(i, q) for i, q in top])
                        for t, p, top in part["tokens"]
                    ]

    async def check_grammar(self, grammar: str) -> list[int]:
        with errors_of_requests():
            answer = await self._child.ask("check_grammar", grammar=grammar)
        ends: list[int] = answer["ends"]
        return ends

    async def hold(self) -> None:
        self._holding.enter_context(self._held.during())
        await self._child.ask("hold", held=True)

    async def go_on(self) -> None:
        await self._child.ask("hold", held=False)
        self._holding.close()

    async def sampling(self) -> dict[str, float]:
        return await self._child.ask("sampling")

    async def score(self, batch: base.ScoreBatch) -> list[base.Scores]:
        answer = await self._work("score", batch)
        return [base.Scores.model_validate(scores) for scores in answer["scores"]]

    async def features(self, items: list[base.TrainItem]) -> list[list[float]]:
        if not items:
            return []
        shown = [item.model_dump(include={"tokens", "images", "spans"}) for item in items]
        answer = await self._child.ask("features", items=shown)
        return unpack_rows(answer["rows"], len(items))

    async def fit_preferences(
        self, features_ND: list[list[float]], pairs: list[base.Pair]
    ) -> base.PreferenceModel:
        rows, count = pack_rows(features_ND), len(features_ND)
        answer = await self._child.ask("fit_preferences", rows=rows, count=count, pairs=pairs)
        return base.PreferenceModel.model_validate(answer)

    async def forward_backward(self, batch: base.TrainBatch) -> dict[str, float]:
        return await self._work("forward_backward", batch)

    async def _work(self, op: str, batch: base.ScoreBatch | base.TrainBatch) -> dict[str, Any]:
        """Execute a pass over a batch, reporting its progress."""
        answer: dict[str, Any] = {}
        async for answer in self._child.stream(op, batch=batch.model_dump()):
            if "done" in answer:
                self.on_progress(answer["done"], answer["total"])
        return answer

    async def optim_step(self, step: base.AdamStep) -> dict[str, float]:
        return await self._child.ask("optim_step", step=step.model_dump())

    async def optim_reset(self) -> None:
        await self._child.ask("optim_reset")

    async def publish(self, version: int) -> dict[str, float]:
        answer = await self._child.ask("publish")
        self.version = version
        return answer

    async def save(self, folder: Path) -> None:
        await self._child.ask("save", folder=str(folder), base_name=self._base_name)

    async def save_adapter(self, folder: Path) -> None:
        await self._child.ask("save_adapter", folder=str(folder), base_name=self._base_name)

    async def restore(self, folder: Path) -> None:
        await self._child.ask("restore", folder=str(folder))

    async def load_adapter(self, folder: Path) -> None:
        await self._child.ask("load_adapter", folder=str(folder))

    async def close(self) -> None:
        await self._child.close()
