"""Data-parallel LoRA training: several trainers share each batch, one per GPU.

Every process has the whole model. A batch is split where its sequences share the shortest prefixes.
Each process computes the gradients of its share, which are summed before all take the same step
(torch/ranks.py). The process with the fewest active rollouts samples the next. If one dies, all
end, and the run resumes from its last checkpoint.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from engine.hardware.machine import threads
from engine.policy import base
from engine.policy.prefix import shared
from engine.policy.worker import TORCH, TorchPolicy
from engine.protocol.records.machine.hardware import Card
from engine.runtime.closing import cancel

T = TypeVar("T")
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
SUMMED = ("tokens/forwarded",)
"""Metrics that are summed over processes; other utilisation metrics are averaged."""


class ParallelPolicy:
    """Policy with several trainer processes. Create it with `start`, end it with `close`."""

    def __init__(self, trainers: list[TorchPolicy], scratch: Path) -> None:
        self._trainers, self._scratch = trainers, scratch
        self._sampling = [0] * len(trainers)
        self._done: list[tuple[int, int]] = []
        self.version = 0
        self.on_progress: base.Progress = lambda done, total: None
        self.on_restart: base.OnRestart | None = None
        for number, trainer in enumerate(trainers):
            trainer.on_progress = lambda done, total, n=number: self._progress(n, done, total)  # type: ignore[misc]

    @classmethod
    async def start(
        cls,
        log: Path,
        base_name: str,
        count: int,
        cards: Sequence[Card] = (),
        program: Sequence[str] = TORCH,
    ) -> "ParallelPolicy":
        """Start `count` policy processes, one per GPU of `cards`; without GPUs they share the CPU's
        cores. `base_name` is written into saved adapters, `program` is the command of a process."""
        scratch = Path(tempfile.mkdtemp(prefix="atelier-ranks-"))
        starts = [
            TorchPolicy.start(
                log, base_name, _variables(rank, count, scratch / "meeting", cards), program
            )
            for rank in range(count)
        ]
        return cls(list(await asyncio.gather(*starts)), scratch)

    @property
    def away_s(self) -> float:
        return self._trainers[0].away_s

    @property
    def pids(self) -> list[int]:
        return [pid for trainer in self._trainers for pid in trainer.pids]

    async def load(self, spec: base.PolicySpec) -> base.PolicyInfo:
        infos = await _all(trainer.load(spec) for trainer in self._trainers)
        return infos[0].model_copy(update={"seconds": max(info.seconds for info in infos)})

    async def sample(self, request: base.SampleRequest) -> AsyncIterator[list[base.SampledToken]]:
        place = min(range(len(self._trainers)), key=self._sampling.__getitem__)
        self._sampling[place] += 1
        try:
            async for tokens in self._trainers[place].sample(request):
                yield tokens
        finally:
            self._sampling[place] -= 1

    async def check_grammar(self, grammar: str) -> list[int]:
        return await self._trainers[0].check_grammar(grammar)

    async def hold(self) -> None:
        await _all(trainer.hold() for trainer in self._trainers)

    async def go_on(self) -> None:
        await _all(trainer.go_on() for trainer in self._trainers)

    async def sampling(self) -> dict[str, float]:
        return _mean(await _all(trainer.sampling() for trainer in self._trainers))

    async def score(self, batch: base.ScoreBatch) -> list[base.Scores]:
        shares = self._shares(batch.items)
        dealt = [
            batch.model_copy(update={"items": [batch.items[n] for n in share]}) for share in shares
        ]
        answers = await _all(t.score(part) for t, part in zip(self._trainers, dealt, strict=True))
        places = [number for share in shares for number in share]
        found = [scores for answer in answers for scores in answer]
        return [scores for _, scores in sorted(zip(places, found, strict=True), key=lambda p: p[0])]

    async def features(self, items: list[base.TrainItem]) -> list[list[float]]:
        return await self._trainers[0].features(items)

    async def fit_preferences(
        self, features_ND: list[list[float]], pairs: list[base.Pair]
    ) -> base.PreferenceModel:
        return await self._trainers[0].fit_preferences(features_ND, pairs)

    async def forward_backward(self, batch: base.TrainBatch) -> dict[str, float]:
        shares = [[batch.items[n] for n in share] for share in self._shares(batch.items)]
        self._done = [(0, len(share)) for share in shares]
        answers = await _all(
            trainer.forward_backward(batch.model_copy(update={"items": share}))
            for trainer, share in zip(self._trainers, shares, strict=True)
        )
        effort = {name for answer in answers[1:] for name in answer}
        used = [{n: a[n] for n in effort if n in a} for a in answers]
        summed = {n: sum(a.get(n, 0.0) for a in used) for n in SUMMED}
        return answers[0] | _mean(used) | summed

    async def optim_step(self, step: base.AdamStep) -> dict[str, float]:
        return (await _all(trainer.optim_step(step) for trainer in self._trainers))[0]

    async def optim_reset(self) -> None:
        await _all(trainer.optim_reset() for trainer in self._trainers)

    async def publish(self, version: int) -> dict[str, float]:
        """Publish in all processes; returns the largest `publish_gap`."""
        answers = await _all(trainer.publish(version) for trainer in self._trainers)
        self.version = version
        return {"publish_gap": max(answer["publish_gap"] for answer in answers)}

    async def save(self, folder: Path) -> None:
        await self._trainers[0].save(folder)

    async def save_adapter(self, folder: Path) -> None:
        await self._trainers[0].save_adapter(folder)

    async def restore(self, folder: Path) -> None:
        await _all(trainer.restore(folder) for trainer in self._trainers)

    async def load_adapter(self, folder: Path) -> None:
        await _all(trainer.load_adapter(folder) for trainer in self._trainers)

    async def close(self) -> None:
        await asyncio.gather(*(trainer.close() for trainer in self._trainers))
        await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)

    def _shares(self, items: Sequence[base.TrainItem]) -> list[list[int]]:
        return partition_sequences([item.tokens for item in items], len(self._trainers))

    def _progress(self, number: int, done: int, total: int) -> None:
        if number < len(self._done):
            self._done[number] = (done, total)
            self.on_progress(*map(sum, zip(*self._done, strict=True)))


def partition_sequences(sequences: Sequence[list[int]], count: int) -> list[list[int]]:
    """Split token sequences among `count` processes; returns the indices for each. Common prefixes
    stay together, and the numbers of distinct tokens are balanced."""
    order = sorted(range(len(sequences)), key=sequences.__getitem__)
    new, before = [], list[int]()
    for number in order:
        new.append(len(sequences[number]) - shared(before, sequences[number]))
        before = sequences[number]
    dealt: list[list[int]] = [[] for _ in range(count)]
    total, passed = sum(new), 0.0
    for number, tokens in zip(order, new, strict=True):
        middle = passed + tokens / 2
        dealt[min(count - 1, int(middle * count / total))].append(number)
        passed += tokens
    return dealt


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Results of concurrent coroutines; the first failure cancels the others and is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await cancel(*tasks)


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    names = {name for row in rows for name in row}
    found = {name: [row[name] for row in rows if name in row] for name in names}
    return {name: sum(values) / len(values) for name, values in found.items()}


def _variables(rank: int, count: int, meeting: Path, cards: Sequence[Card]) -> dict[str, str]:
    found = {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)}
    found |= {"ATELIER_RENDEZVOUS": str(meeting), **LOOPBACK}
    if cards:
        return found | {"CUDA_VISIBLE_DEVICES": cards[rank].uuid}
    return found | {"OMP_NUM_THREADS": str(max(1, threads() // count))}
