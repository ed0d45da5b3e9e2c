"""Policy on a cluster: it samples and trains there, with our losses and our checks.

The cluster returns log-probs of the batch; our loss gives its derivative g with respect to each
log-prob, and the gradient is sent as importance sampling with those same log-probs (ratio 1) and
advantages −g, scaled for the cluster's reduction. That is exact for every loss whose inputs are
log-probs: the chain rule needs no more. The price is one more forward pass.
"""

import asyncio
import contextlib
import json
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterable, Set
from pathlib import Path
from typing import NamedTuple

from engine.models.file_checks import stop_tokens
from engine.policy import base, fork_server
from engine.policy.logprob_gap import TOLERANCE, mean_gap, stale_or_different
from engine.policy.rows import pack_rows
from engine.policy.tinker import open_models
from engine.policy.tinker.adam import ZEROING, AdamCounter
from engine.policy.tinker.adapter_files import complete_config
from engine.policy.tinker.calibration import calibrate, grad_norm, moved_above
from engine.policy.tinker.cluster import Cluster, ClusterAccess
from engine.policy.tinker.refusals import (
    no_grammars,
    no_value_head,
    not_there,
    refuse_alpha,
    refuse_batch,
    refuse_request,
    refuse_shape,
)
from engine.policy.worker import VARIABLES, TorchPolicy
from engine.protocol.problems import PolicyError, RolloutError
from engine.protocol.records.clusters import ClusterProfile
from engine.runtime.child import Child
from engine.runtime.paths import ROOT
from engine.runtime.timeouts import Outages

STATE = "cluster.json"
"""File of a checkpoint, in its folder `trainer`: where the cluster keeps the state."""
LOSSES = (sys.executable, "-m", "engine.policy.tinker.losses")


class Gradient(NamedTuple):
    """Part of the next step's gradient: items with their log-probs, and the derivative of the loss
    by each."""

    items: list[base.TrainItem]
    logprobs: list[list[float]]
    rows: list[list[float]]


class TinkerPolicy:
    """Policy at a cluster. Create it with `start`, end it with `close`."""

    def __init__(self, cluster: Cluster, losses: Child, log: Path, base_name: str) -> None:
        self._cluster, self._losses, self._log, self._base_name = cluster, losses, log, base_name
        self._profile: ClusterProfile | None = None
        self._spec: base.PolicySpec | None = None
        self._local: TorchPolicy | None = None
        self._path = ""
        """Path of the published snapshot."""
        self._gradients: list[Gradient] = []
        self._adam = AdamCounter()
        self._changed = False
        """Whether the weights have changed since the snapshot."""
        self._canary: list[int] = []
        self._said: list[float] = []
        """Trainer's log-probs of the fixed text at the last publication."""
        self._eos: list[int] = []
        self._states: set[str] = set()
        """Saved states of this run that are not deleted."""
        self._held, self._holding = Outages(), contextlib.ExitStack()
        self._gate = asyncio.Event()
        self._gate.set()
        self.version = 0
        self.on_progress: base.Progress = lambda done, total: None
        self.on_restart: base.OnRestart | None = None

    @classmethod
    async def start(cls, log: Path, base_name: str, access: ClusterAccess) -> "TinkerPolicy":
        """Connect to a cluster, and unload models that ended clients of this machine have left
        there. Raises ChildDied, PolicyError, EnvironmentMissing."""
        cluster = await Cluster.connect(access, log)
        try:
            for model_id in await asyncio.to_thread(open_models.left_at, access.spec.place):
                await cluster.unload(model_id)
            losses = await _start_losses(log)
        except BaseException:
            await asyncio.shield(cluster.close())
            raise
        return cls(cluster, losses, log, base_name)

    @property
    def away_s(self) -> float:
        return self._held.seconds

    @property
    def pids(self) -> list[int]:
        local = self._local.pids if self._local else []
        return [self._cluster.pid, self._losses.pid, *local]

    async def load(self, spec: base.PolicySpec) -> base.PolicyInfo:
        """Calibrate the cluster on a scratch model, then create the model in training."""
        start_s = time.monotonic()
        refuse_shape(spec)
        folder, shape = Path(spec.model_path), spec.model
        self._spec, self._eos = spec, await asyncio.to_thread(stop_tokens, folder)
        model = self._cluster.model_called(shape.name)
        start = (self._eos or [1])[0]
        seed = spec.seed % 2**31
        self._profile, self._canary = await calibrate(self._cluster, model, shape.rank, seed, start)
        refuse_alpha(self._profile.alpha, shape.alpha)
        await self._cluster.create(model, shape.rank, seed)
        self._changed = True
        dtype = "bfloat16" if self._profile.logprob_gap > TOLERANCE["float32"] else "float32"
        return base.PolicyInfo(
            parameters=0,
            trainable=0,
            dtype=dtype,
            device=self._cluster.spec.name,
            seconds=time.monotonic() - start_s,
            shares_prefixes=False,
            unshared_reason="the cluster receives every sequence as a whole",
            eos_tokens=self._eos,
            sampler=f"{self._cluster.spec.name}, {dtype}",
            cluster=self._profile,
        )

    async def sample(self, request: base.SampleRequest) -> AsyncIterator[list[base.SampledToken]]:
        refuse_request(request)
        await self._gate.wait()
        self._require_snapshot()
        stops = [*([] if request.ignore_eos else self._eos), *request.stop_tokens]
        done = await self._cluster.sample(
            self._path,
            request.tokens,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed % 2**31,
            **({"stop": stops} if stops else {}),
        )
        if not done.tokens or len(done.tokens) != len(done.logprobs):
            raise RolloutError.of(
                "cluster.no_tokens", "The cluster returned a completion without tokens."
            )
        yield [
            base.SampledToken(token, logprob, [])
            for token, logprob in zip(done.tokens, done.logprobs, strict=True)
        ]

    async def check_grammar(self, grammar: str) -> list[int]:
        raise no_grammars()

    async def hold(self) -> None:
        """Delay new requests until `go_on`; those at the cluster are completed."""
        self._holding.enter_context(self._held.during())
        self._gate.clear()

    async def go_on(self) -> None:
        self._gate.set()
        self._holding.close()

    async def sampling(self) -> dict[str, float]:
        return {}

    async def score(self, batch: base.ScoreBatch) -> list[base.Scores]:
        if batch.values:
            raise no_value_head()
        logprobs = await self._cluster.forward(batch.items)
        found = [base.Scores(logprobs=row) for row in logprobs]
        if batch.reference:
            rows = await self._reference(batch.items)
            found = [
                scores.model_copy(update={"reference": row})
                for scores, row in zip(found, rows, strict=True)
            ]
        self.on_progress(len(found), len(found))
        return found

    async def features(self, items: list[base.TrainItem]) -> list[list[float]]:
        """Features by the base model on this machine, which is loaded at the first call."""
        if self._local is None:
            self._local = await TorchPolicy.start(self._log, self._base_name)
            assert self._spec is not None
            await self._local.load(self._spec)
        return await self._local.features(items)

    async def fit_preferences(
        self, features_ND: list[list[float]], pairs: list[base.Pair]
    ) -> base.PreferenceModel:
        rows, count = pack_rows(features_ND), len(features_ND)
        answer = await self._losses.ask("fit_preferences", rows=rows, count=count, pairs=pairs)
        return base.PreferenceModel.model_validate(answer)

    async def forward_backward(self, batch: base.TrainBatch) -> dict[str, float]:
        """Compute the gradient of the loss by each log-prob. It is sent with the step, whose number
        of sequences scales it."""
        refuse_batch(batch)
        algorithm = batch.algorithm
        logprobs = await self._cluster.forward(batch.items)
        has_kl = batch.objective == "policy_gradient" and algorithm.kl and algorithm.kl_in == "loss"
        reference = await self._reference(batch.items) if has_kl else None
        found = await self._losses.ask(
            "gradient", batch=batch.model_dump(), logprobs=logprobs, reference=reference
        )
        self._gradients.append(Gradient(batch.items, logprobs, found["gradient"]))
        self.on_progress(len(batch.items), len(batch.items))
        metrics: dict[str, float] = found["metrics"]
        return metrics

    async def optim_step(self, step: base.AdamStep) -> dict[str, float]:
        await self._send_gradients()
        self._changed = True
        metrics = await self._cluster.step(**self._adam.following(step))
        self._adam.count()
        norm = grad_norm(metrics)
        return {} if norm is None else {"grad_norm": norm}

    async def optim_reset(self) -> None:
        """Reset the moments by a step without effect on the weights (see adam.py)."""
        item = base.TrainItem(tokens=self._canary, spans=[(1, len(self._canary))])
        logprobs = await self._cluster.forward([item])
        await self._cluster.backward([item], logprobs, [[0.0] * len(logprobs[0])])
        await self._cluster.step(**ZEROING)
        self._adam.reset()

    async def publish(self, version: int) -> dict[str, float]:
        """Save a snapshot and verify it: sampler and trainer must return the same log-probs of a
        fixed text, a measurable change must show in the sampler, and the trainer must not have
        moved. Raises PolicyError."""
        path = await self._cluster.snapshot(f"step-{version}-{secrets.token_hex(4)}")
        before, self._said = self._said, await self._say()
        (sampler,) = await self._cluster.score(path, [self._canary])
        again = await self._say()
        self._verify(sampler, before, again)
        old, self._path, self._changed = self._path, path, False
        if old:
            await self._cluster.drop(old)
        self.version = version
        metrics = {"publish_gap": mean_gap(sampler, self._said)}
        if before:
            metrics["publish_moved"] = mean_gap(before, self._said)
        return metrics

    async def save(self, folder: Path) -> None:
        await self.save_adapter(folder / "adapter")
        path = await self._cluster.save(f"state-{self.version}-{secrets.token_hex(4)}")
        (folder / "trainer").mkdir()
        state = {
            "cluster": self._cluster.spec.name,
            "place": self._cluster.spec.place,
            "model": self._measured.model,
            "path": path,
            "adam": self._adam.model_dump(),
        }
        (folder / "trainer" / STATE).write_text(json.dumps(state, indent=1) + "\n")
        self._states.add(path)
        await self._delete_states(folder)

    async def _delete_states(self, folder: Path) -> None:
        """Delete the states that this policy has saved for checkpoints which are deleted meanwhile,
        unless a branch has a copy; `folder` is that of a checkpoint of the run."""
        for path in await asyncio.to_thread(_unused, self._states, folder.parent):
            self._states.discard(path)
            await self._cluster.delete(path)

    async def save_adapter(self, folder: Path) -> None:
        path = self._path
        if self._changed:
            path = await self._cluster.snapshot(f"adapter-{secrets.token_hex(4)}")
        await self._cluster.download(path, folder)
        await asyncio.to_thread(complete_config, folder, self._base_name)
        if path != self._path:
            await self._cluster.drop(path)

    async def restore(self, folder: Path) -> None:
        """Continue from a state that this cluster has kept. Raises PolicyError for a checkpoint of
        another place, since an adapter cannot be uploaded."""
        file = folder / "trainer" / STATE
        if not file.exists():
            raise not_there("it was not saved on a cluster")
        state = json.loads(file.read_text())
        if state["place"] != self._cluster.spec.place:
            raise not_there(f"it was saved on the cluster {state['cluster']}")
        await self._cluster.resume(state["model"], state["path"])
        self._states.add(state["path"])
        self._adam = AdamCounter.model_validate(state["adam"])
        self._gradients.clear()
        self._said, self._changed = [], True

    async def load_adapter(self, folder: Path) -> None:
        raise not_there("an adapter cannot be uploaded")

    async def close(self) -> None:
        local, self._local = self._local, None
        await asyncio.gather(
            self._cluster.close(), self._losses.close(), *([local.close()] if local else [])
        )

    @property
    def _measured(self) -> ClusterProfile:
        if self._profile is None:
            raise PolicyError.of("policy.not_loaded", "The cluster has loaded no model yet.")
        return self._profile

    async def _send_gradients(self) -> None:
        """Send the gradients of this step, scaled for the cluster's reduction. Sequences without a
        gradient are left out, except that one is always sent."""
        parts, self._gradients = self._gradients, []
        rows = [row for part in parts for row in zip(*part, strict=True)]
        sent = [row for row in rows if any(row[2])] or rows[:1]
        if not sent:
            raise PolicyError.of("policy.no_gradient", "There is no gradient to apply.")
        items, logprobs, gradients = (list(column) for column in zip(*sent, strict=True))
        scales = self._scales(items)
        advantages = [
            [-scale * value for value in row] for scale, row in zip(scales, gradients, strict=True)
        ]
        await self._cluster.backward(items, logprobs, advantages)

    def _scales(self, items: list[base.TrainItem]) -> list[float]:
        """Divisor that the cluster applies to each sequence's sum of losses."""
        profile = self._measured
        sequences = len(items) if profile.sequences == "mean" else 1
        return [
            float(sequences * (item.spans[-1][1] - 1 if profile.tokens == "mean" else 1))
            for item in items
        ]

    async def _reference(self, items: list[base.TrainItem]) -> list[list[float]]:
        """Log-probs of the trained tokens by the base model."""
        texts = [item.tokens[: item.spans[-1][1]] for item in items]
        rows = await self._cluster.score("", texts)
        return [
            [row[n - 1] for start, end in item.spans for n in range(start, end)]
            for row, item in zip(rows, items, strict=True)
        ]

    async def _say(self) -> list[float]:
        item = base.TrainItem(tokens=self._canary, spans=[(1, len(self._canary))])
        return (await self._cluster.forward([item]))[0]

    def _verify(self, sampler: list[float], before: list[float], again: list[float]) -> None:
        exact = self._measured.logprob_gap <= TOLERANCE["float32"]
        problem = stale_or_different(
            sampler, self._said, before, "float32" if exact else "bfloat16"
        )
        if problem is not None:
            raise PolicyError(problem)
        moved = mean_gap(again, self._said)
        if moved > moved_above(self._measured.noise):
            raise PolicyError.of(
                "cluster.trainer_moved",
                f"Sampling from a snapshot changed the weights in training on "
                f"{self._cluster.spec.name} by {moved:.3g} nats per token.",
                "Update the server; the run can be resumed from its last checkpoint.",
            )

    def _require_snapshot(self) -> None:
        if self._changed and not self._measured.pinned:
            raise PolicyError.of(
                "cluster.not_pinned",
                f"{self._cluster.spec.name} does not keep snapshots apart from the weights in "
                "training, so it cannot sample between an update and its publication.",
                "Set train.staleness to 0.",
                where="train.staleness",
            )


async def _start_losses(log: Path) -> Child:
    launch = fork_server.launcher()
    return await Child.spawn(
        "losses", [*LOSSES], cwd=ROOT, log=log, environment=VARIABLES, start=launch
    )


def _unused(states: Set[str], checkpoints: Path) -> set[str]:
    """States that no checkpoint refers to, neither in this run's folder of `checkpoints` nor in
    those of the project's other runs; none if a file there cannot be read."""
    runs = checkpoints.parents[1]
    try:
        if unused := states - _referred(checkpoints.glob(f"*/trainer/{STATE}")):
            unused -= _referred(runs.glob(f"*/{checkpoints.name}/*/trainer/{STATE}"))
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return set(unused)


def _referred(files: Iterable[Path]) -> set[str]:
    """Paths of the states in these files."""
    return {json.loads(file.read_text())["path"] for file in files}
