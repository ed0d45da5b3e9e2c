"""Connection to a cluster through its client process: typed calls, each with a deadline."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import psutil
from pydantic import ValidationError

from engine.environments import python_of
from engine.policy.base import TrainItem
from engine.policy.tinker import open_models
from engine.protocol.base import Value
from engine.protocol.problems import AtelierError, PolicyError
from engine.protocol.requests.clusters import ClusterModel, ClusterSpec
from engine.runtime.child import Child, ChildDied
from engine.runtime.paths import ISOLATED, ROOT

T = TypeVar("T")
CONNECT_S, CREATE_S, CALL_S, SAMPLE_S = 60.0, 900.0, 600.0, 900.0
"""Deadlines in seconds: connecting; creating a model, which may load it; a pass over a batch, a
step, a snapshot; a completion. The first call of a shape may compile for minutes."""
HEALTH_S = 15.0
LOOK_S = 20.0
MOST_SILENT = 2
"""Seconds between health checks of a cluster that owes an answer, and the number of failed ones in
a row after which it counts as dead."""
RESTARTED = ("cluster.unreachable", "cluster.restarted")
"""Codes of problems after which the run resumes from its last checkpoint."""


class ClusterAccess(NamedTuple):
    """Cluster that samples and trains, and the way to it."""

    spec: ClusterSpec
    key: str = ""
    """API key; empty for none."""
    socket: Path | None = None
    """Local Unix socket that is forwarded to the cluster's address; None for a direct
    connection."""
    discard: Callable[[str], Awaitable[None]] | None = None
    """Deletes a snapshot or saved state by its path, for a server whose API cannot; raises
    AtelierError."""


class Completion(Value):
    tokens: list[int]
    logprobs: list[float]


class Cluster:
    """Session at a cluster. Calls raise ChildDied if the client process has ended, the cluster
    cannot be reached, or a deadline has passed: the run then resumes from its last checkpoint.
    They raise PolicyError if the cluster refuses a request."""

    def __init__(self, child: Child, access: ClusterAccess) -> None:
        self._child, self.spec, self._discard = child, access.spec, access.discard
        self._process = psutil.Process(child.pid)
        self._process.create_time()  # read now and kept: it cannot be read after its end
        self.models: list[ClusterModel] = []
        self.client = ""
        self.model_id = ""
        """Id of the model in training; empty before `create` or `resume`."""

    @classmethod
    async def connect(cls, access: ClusterAccess, log: Path) -> Self:
        """Start the client process and open a session. Raises also EnvironmentMissing."""
        spec = access.spec
        python = await asyncio.to_thread(python_of, spec.client)
        argv = [str(python), "-P", str(ISOLATED), "engine.policy.tinker.client"]
        child = await Child.spawn("cluster", argv, cwd=ROOT, log=log)
        cluster = cls(child, access)
        try:
            socket = str(access.socket or "")
            found = await cluster._ask(
                "connect", CONNECT_S, address=spec.address, key=access.key, socket=socket
            )
        except BaseException:
            await asyncio.shield(child.close())
            raise
        cluster.models = [ClusterModel.model_validate(model) for model in found["models"]]
        cluster.client = found["client"]
        return cluster

    @property
    def pid(self) -> int:
        return self._child.pid

    def model_called(self, name: str) -> str:
        """Name of a base model at the cluster: the same, or a path that ends with it. Raises
        PolicyError if the cluster does not serve it."""
        last = name.rpartition("/")[2].lower()
        for model in self.models:
            if model.name == name or model.name.rpartition("/")[2].lower() == last:
                return model.name
        served = ", ".join(model.name for model in self.models) or "none"
        raise PolicyError.of(
            "cluster.no_model",
            f"{self.spec.name} does not serve {name}; its models are: {served}.",
            "Set model.name to one of them, or choose another cluster.",
            where="model.name",
        )

    async def create(self, model: str, rank: int, seed: int) -> None:
        """Create a model in training with a new adapter, in place of the present one."""
        await self._open("create", model=model, rank=rank, seed=seed)

    async def resume(self, model: str, path: str) -> None:
        """Create a model in training from a saved state with its optimizer."""
        await self._open("resume", model=model, path=path)

    async def unload(self, model_id: str) -> None:
        """Unload a model that an ended engine left."""
        await self._ask("unload", CALL_S, model_id=model_id)
        await self._forget(model_id)

    async def forward(self, items: Sequence[TrainItem]) -> list[list[float]]:
        """Log-probs of the trained tokens of each item, at temperature 1."""
        found = await self._ask("forward", CALL_S, items=_plain(items))
        counts = [sum(end - start for start, end in item.spans) for item in items]
        return _checked(found["logprobs"], counts)

    async def backward(
        self, items: Sequence[TrainItem], logprobs: list[list[float]], advantages: list[list[float]]
    ) -> None:
        """Add the gradient of −Σ e^(lp − logprobs) · advantages to that of the next step, in the
        cluster's reduction. Sent once."""
        await self._ask(
            "backward", CALL_S, items=_plain(items), logprobs=logprobs, advantages=advantages
        )

    async def step(self, **adam: float) -> dict[str, float]:
        """Apply an AdamW step (fields of the SDK's AdamParams); returns the cluster's metrics."""
        metrics: dict[str, float] = (await self._ask("step", CALL_S, adam=adam))["metrics"]
        return metrics

    async def snapshot(self, name: str) -> str:
        """Save the weights for sampling under a name that is new; returns the path."""
        path: str = (await self._ask("snapshot", CALL_S, name=name))["path"]
        return path

    async def drop(self, path: str) -> None:
        """Forget the sampler of a snapshot, and delete the snapshot if the cluster can."""
        await self._ask("drop", CALL_S, path=path)
        await self.delete(path)

    async def delete(self, path: str) -> None:
        """Delete a snapshot or saved state if the cluster can."""
        found = await self._ask("delete", CALL_S, path=path)
        if not found["deleted"] and self._discard:
            with contextlib.suppress(AtelierError):  # its machine is away
                await self._discard(path)

    async def sample(self, path: str, tokens: list[int], **sampling: Any) -> Completion:
        """Sample a completion by a snapshot (fields of the SDK's SamplingParams)."""
        found = await self._ask("sample", SAMPLE_S, path=path, tokens=tokens, sampling=sampling)
        try:
            return Completion.model_validate({name: found[name] for name in ("tokens", "logprobs")})
        except ValidationError as error:
            raise _unreadable("tokens or log-probs that are no numbers") from error

    async def score(self, path: str, texts: Sequence[list[int]]) -> list[list[float]]:
        """Log-probs of each token after the first by a snapshot; by the base model if `path` is
        empty."""
        found = await self._ask("score", SAMPLE_S, path=path, texts=list(texts))
        return _checked(found["logprobs"], [len(tokens) - 1 for tokens in texts])

    async def save(self, name: str) -> str:
        """Save weights and optimizer on the cluster; returns the path."""
        path: str = (await self._ask("save", CALL_S, name=name))["path"]
        return path

    async def download(self, path: str, folder: Path) -> None:
        """Write the adapter of a snapshot as a PEFT folder that does not exist."""
        await self._ask("download", CALL_S, path=path, folder=str(folder))

    async def close(self) -> None:
        """Unload the model, end the session and the client process."""
        if self._child.alive and self.model_id:
            try:
                await asyncio.wait_for(self._child.ask("close"), HEALTH_S)
            except (AtelierError, TimeoutError):
                pass  # the list of open models remembers it
            else:
                await self._forget(self.model_id)
        await self._child.close()

    async def _open(self, op: str, **fields: Any) -> None:
        """Open a model in place of the present one, and keep the list of open models."""
        before = self.model_id
        await self._answer(op, CREATE_S, self._opening(op, fields))
        if before:
            await self._forget(before)

    async def _opening(self, op: str, fields: dict[str, Any]) -> None:
        async for part in self._child.stream(op, **fields):
            if part["model_id"] != self.model_id:
                self.model_id = part["model_id"]
                await asyncio.to_thread(
                    open_models.opened, self.spec.place, self.model_id, self._process
                )

    async def _forget(self, model_id: str) -> None:
        await asyncio.to_thread(open_models.closed, self.spec.place, model_id)

    async def _ask(self, op: str, deadline_s: float, **fields: Any) -> dict[str, Any]:
        return await self._answer(op, deadline_s, self._child.ask(op, **fields))

    async def _answer(self, op: str, deadline_s: float, work: Coroutine[Any, Any, T]) -> T:
        """Result of `work`, the operation `op`, within its deadline. The cluster's health is
        checked meanwhile."""
        task, end, silent = asyncio.ensure_future(work), time.monotonic() + deadline_s, 0
        try:
            while not task.done():
                rest = end - time.monotonic()
                if rest <= 0 or silent == MOST_SILENT:
                    raise self._no_answer(op, deadline_s - rest, silent)
                await asyncio.wait({task}, timeout=min(LOOK_S, rest))
                if not task.done():
                    silent = 0 if await self._is_healthy() else silent + 1
            return task.result()
        except ChildDied:
            raise
        except AtelierError as error:
            if error.problem.code in RESTARTED:
                raise ChildDied(error.problem) from error
            raise PolicyError(error.problem) from error
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _is_healthy(self) -> bool:
        try:
            found = await asyncio.wait_for(self._child.ask("health"), HEALTH_S)
        except (AtelierError, TimeoutError):
            return False
        return bool(found["healthy"])

    def _no_answer(self, op: str, waited_s: float, silent: int) -> ChildDied:
        state = "does not answer its health check"
        if not silent:
            state = "answers its health check, so its engine may have ended"
        return ChildDied.of(
            "cluster.no_answer",
            f"{self.spec.name} did not complete a request ({op}) within {waited_s:.0f} s; it "
            f"{state}.",
            "Check the cluster's log.",
        )


def _plain(items: Sequence[TrainItem]) -> list[dict[str, Any]]:
    return [item.model_dump(include={"tokens", "spans"}) for item in items]


def _checked(rows: list[list[float]], counts: list[int]) -> list[list[float]]:
    """Rows of log-probs, of these lengths. Raises PolicyError for others, or for other values."""
    if [len(row) for row in rows] != counts:
        raise _unreadable("a wrong number of log-probs")
    if not all(isinstance(value, int | float) for row in rows for value in row):
        raise _unreadable("log-probs that are no numbers")
    return rows


def _unreadable(what: str) -> PolicyError:
    return PolicyError.of(
        "cluster.protocol", f"The cluster returned {what}.", "Choose the SDK that fits the server."
    )
