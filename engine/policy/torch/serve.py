"""Policy process: `python -m engine.policy.torch.serve LINE LIFE`, with the descriptors of the
socket for requests and of the life pipe, which closes when the engine exits.

One thread computes, one reads requests, and one watches the life pipe. During sampling, new
requests join between decode steps.
"""

import json
import os
import queue
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from engine.hardware.machine import threads
from engine.policy.base import (
    AdamStep,
    Pair,
    PolicyInfo,
    PolicySpec,
    SampledToken,
    SampleRequest,
    ScoreBatch,
    TrainBatch,
    TrainItem,
)
from engine.policy.logprob_gap import TOLERANCE
from engine.policy.rows import pack_rows, unpack_rows
from engine.policy.torch.model.features import features
from engine.policy.torch.model.loading import Loader, has_experts, load, not_loadable
from engine.policy.torch.model.model import LoraModel, free_bytes
from engine.policy.torch.sampling.sampler import AloneSampler, Sampler
from engine.policy.torch.training.bradley_terry import fit
from engine.policy.torch.training.optimizer import Optimizer
from engine.policy.torch.training.ranks import Ranks
from engine.policy.torch.training.trainer import Progress, forward_backward, score
from engine.protocol.problems import AtelierError, PolicyError, Problem
from engine.runtime.life_pipe import exit_with_engine

MOMENTS = "optimizer.safetensors"

GATHER_S = 0.004
"""Seconds without a further request after which a first batch of requests starts."""

CACHE_SHARE = 0.3
"""Share of the free memory after loading that is used for keys and values."""
MOST_CACHED = 131_072
"""Maximum number of cached tokens: 64 rollouts of 2 000."""


class PolicyServer:
    """Server of one policy: executes requests sequentially, except for concurrent sampling."""

    def __init__(
        self, line: socket.socket, ranks: Ranks | None = None, loader: Loader = load
    ) -> None:
        self._line, self._load_model = line, loader
        self._ranks = ranks or Ranks(0, 1)
        self._inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self._parts: dict[int, list[SampledToken]] = {}
        self._ended: dict[int, str] = {}
        self._model: LoraModel | None = None
        self._held = False

    def run(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()
        while True:
            busy = self._model is not None and self._sampler.busy and not self._held
            message = self._next(block=not busy)
            if message is None:
                self._sample()
                continue
            self._handle(message)
            while busy_message := self._next(block=False, wait_s=GATHER_S):
                self._handle(busy_message)

    def _sample(self) -> None:
        """Run one decode step. Every active request receives the error of a step that runs out of
        memory, or whose images cannot be read any more."""
        try:
            self._sampler.step()
        except (torch.OutOfMemoryError, MemoryError) as error:
            self._end_all(_out_of_memory("sampling", error))
        except PolicyError as error:
            self._end_all(error.problem)
        self._flush()

    def _end_all(self, problem: Problem) -> None:
        for number in self._sampler.numbers:
            self._sampler.cancel(number)
            self._send(number, "error", problem.model_dump())

    def _next(self, block: bool, wait_s: float = 0.0) -> dict[str, Any] | None:
        try:
            return self._inbox.get(block or wait_s > 0, None if block else wait_s)
        except queue.Empty:
            return None

    def _read(self) -> None:
        with self._line.makefile("rb") as lines:
            for line in lines:
                self._inbox.put(json.loads(line))
        os._exit(0)

    def _send(self, number: int, kind: str, value: Any) -> None:
        self._line.sendall(json.dumps({"id": number, kind: value}).encode() + b"\n")

    def _handle(self, message: dict[str, Any]) -> None:
        number, op = message["id"], message["op"]
        try:
            answer = getattr(self, f"_op_{op}")(number, message)
            if answer is not None:
                self._send(number, "ok", answer)
        except AtelierError as error:
            self._send(number, "error", error.problem.model_dump())
        except (torch.OutOfMemoryError, MemoryError) as error:
            self._send(number, "error", _out_of_memory(op, error).model_dump())

    def _op_load(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        spec = PolicySpec.model_validate(message["spec"])
        start_s = time.monotonic()
        self._spec = spec
        self._model = model = self._built(spec)
        self._optimizer = Optimizer(model.adapter)
        budget = int(CACHE_SHARE * free_bytes(model.device) / model.shape.cached_token_bytes)
        kind = Sampler if model.shares_prefixes else AloneSampler
        cached = min(budget, MOST_CACHED)
        self._sampler = kind(model, model.eos_tokens, self._deliver, cached, self._refuse)
        peak, bandwidth = model.limits
        mixture = has_experts(model.trained.get_base_model())
        return PolicyInfo(
            shares_prefixes=model.shares_prefixes,
            unshared_reason=model.unshared_reason,
            frozen_experts=mixture and not spec.model.adapt_experts,
            adapted_experts=spec.model.adapt_experts,
            peak_flops=peak,
            bandwidth=bandwidth,
            parameters=model.parameters(),
            trainable=sum(p.numel() for p in model.adapter.values()),
            dtype=_dtype_word(model),
            reads_images=model.images is not None,
            eos_tokens=model.eos_tokens,
            on_card=model.device.type == "cuda",
            cached_token_bytes=model.shape.cached_token_bytes,
            device=_device_words(model.device),
            seconds=time.monotonic() - start_s,
        ).model_dump()

    def _built(self, spec: PolicySpec) -> LoraModel:
        """Load the model. Raises ModelError for any error of its code or files, since a restarted
        process would fail the same way."""
        try:
            return LoraModel(spec, self._load_model)
        except (AtelierError, torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            raise not_loadable(spec.model_path, error) from error

    def _op_sample(self, number: int, message: dict[str, Any]) -> None:
        request = self._loaded().with_images(SampleRequest.model_validate(message["request"]))
        self._sampler.add(number, request)

    def _op_check_grammar(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        grammars = self._loaded().grammars
        grammars.compile(message["grammar"])
        return {"ends": grammars.ends}

    def _op_cancel(self, number: int, message: dict[str, Any]) -> None:
        if self._model:
            self._sampler.cancel(number)

    def _op_hold(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        self._held = message["held"]
        return {}

    def _op_sampling(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        self._loaded()
        return self._sampler.effort.take()

    def _op_score(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        model, batch = self._loaded(), ScoreBatch.model_validate(message["batch"])
        batch = batch.model_copy(update={"items": list(map(model.with_images, batch.items))})
        scores = score(model, batch, self._spec.batch_tokens, self._progress(number))
        return {"scores": [of_item.model_dump() for of_item in scores]}

    def _op_features(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        model = self._loaded()
        items = [model.with_images(TrainItem.model_validate(item)) for item in message["items"]]
        return {"rows": pack_rows(features(model, items, self._spec.batch_tokens).tolist())}

    def _op_fit_preferences(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        features_ND = torch.tensor(unpack_rows(message["rows"], message["count"]))
        return fit(features_ND, [Pair(*pair) for pair in message["pairs"]]).model_dump()

    def _op_forward_backward(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        model, batch = self._loaded(), TrainBatch.model_validate(message["batch"])
        batch = batch.model_copy(update={"items": list(map(model.with_images, batch.items))})
        progress = self._progress(number)
        return forward_backward(model, batch, self._spec.batch_tokens, progress, self._ranks)

    def _progress(self, number: int) -> Progress:
        return lambda done, total: self._send(number, "part", {"done": done, "total": total})

    def _op_optim_step(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        head = self._loaded().value_head
        step = AdamStep.model_validate(message["step"])
        metrics = {"grad_norm": self._optimizer.step(step, self._ranks)}
        if head:
            metrics["value/grad_norm"] = head.step(step.max_grad_norm, self._ranks)
        return metrics

    def _op_optim_reset(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        model = self._loaded()
        self._optimizer = Optimizer(model.adapter)
        if model.value_head:
            model.value_head.forget()
        return {}

    def _op_publish(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        model = self._loaded()
        self._sampler.forget()
        gap = model.publish_gap()
        if not gap <= TOLERANCE[_dtype_word(model)]:
            raise PolicyError.of(
                "policy.publish_differs",
                f"After publishing the adapter, log-probs of sampler and trainer differ by "
                f"{gap:.3g} nats per token.",
                "The adapter may have diverged: lower train.lr and resume from a checkpoint.",
            )
        return {"publish_gap": gap}

    def _op_memory(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        device = self._loaded().device
        if device.type != "cuda":
            return {"peak_bytes": None}
        return {"peak_bytes": torch.cuda.max_memory_allocated(device)}

    def _op_save(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        model, folder = self._loaded(), Path(message["folder"])
        try:
            model.save_adapter(folder / "adapter", message["base_name"])
            (folder / "trainer").mkdir()
            self._optimizer.save(folder / "trainer" / MOMENTS)
            if model.value_head:
                model.value_head.save(folder / "trainer")
        except (OSError, SafetensorError) as error:
            raise PolicyError(_not_saved(error, folder)) from error
        return {}

    def _op_save_adapter(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        folder = Path(message["folder"])
        try:
            self._loaded().save_adapter(folder, message["base_name"])
        except (OSError, SafetensorError) as error:
            raise PolicyError(_not_saved(error, folder)) from error
        return {}

    def _op_restore(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        model, folder = self._loaded(), Path(message["folder"])
        model.load_adapter(folder / "adapter")
        self._sampler.forget()
        self._op_optim_reset(number, message)
        if (folder / "trainer" / MOMENTS).exists():
            self._optimizer.load(folder / "trainer" / MOMENTS)
        if model.value_head:
            model.value_head.load(folder / "trainer")
        return {}

    def _op_load_adapter(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        self._loaded().load_adapter(Path(message["folder"]))
        self._sampler.forget()
        return {}

    def _loaded(self) -> LoraModel:
        if self._model is None:
            raise PolicyError.of("policy.not_loaded", "The policy process has loaded no model yet.")
        return self._model

    def _deliver(self, number: int, token: SampledToken, finish: str | None) -> None:
        self._parts.setdefault(number, []).append(token)
        if finish:
            self._ended[number] = finish

    def _refuse(self, number: int, error: PolicyError) -> None:
        """Send the error of a request that ends because of its grammar."""
        self._send(number, "error", error.problem.model_dump())

    def _flush(self) -> None:
        """Send the tokens of this decode step; a finished request receives its final answer."""
        for number, tokens in self._parts.items():
            self._send(number, "part", {"tokens": tokens})
            if finish := self._ended.pop(number, None):
                self._send(number, "ok", {"finish": finish})
        self._parts.clear()


def _out_of_memory(op: str, error: BaseException) -> Problem:
    return Problem(
        code="policy.out_of_memory",
        message=f"The trainer ran out of memory during {op}.",
        hint="Halve train.batch_tokens, then model.max_context or train.groups, and resume.",
        detail=str(error)[:2000],
    )


def _not_saved(error: Exception, folder: Path) -> Problem:
    full = "No space left" in str(error) or "quota" in str(error).lower()
    return Problem(
        code="store.disk_full" if full else "checkpoint.not_written",
        message="The checkpoint could not be written: "
        + ("the disk is full." if full else f"{error}."),
        hint="Free some space, then resume the run from its previous checkpoint.",
        where=str(folder.parent),
        detail=str(error)[:2000],
    )


def _dtype_word(model: LoraModel) -> str:
    return str(model.dtype).removeprefix("torch.")


def _device_words(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU · {os.cpu_count()} cores"


def main(loader: Loader = load) -> None:
    line, life = int(sys.argv[1]), int(sys.argv[2])
    exit_with_engine(life)
    torch.set_num_threads(threads())
    PolicyServer(socket.socket(fileno=line), Ranks.join(), loader).run()


if __name__ == "__main__":
    main()
