"""Small cluster with Tinker's API (JSON) on localhost, exact or with planted faults.

Its model is a table of next-token logits by the previous token; the adapter is an addition to it,
whose row 0 counts for all tokens.
Losses, reductions, AdamW and snapshots are computed as a cluster does.
"""

import io
import json
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from safetensors.torch import save
from torch import Tensor

from tests.support.lying_engine import Asked, LyingEngine, Said, lying

VOCABULARY = 259
MODEL = "tiny"
Fault = Literal[
    "batch_mean",
    "unsigned",
    "moves_trainer",
    "moves_always",
    "stale",
    "ignores_clipping",
    "no_norm",
    "hangs",
    "other_protocol",
    "wrong_logprobs",
    "no_logprobs",
    "redirects",
]


@dataclass
class Trained:
    """Model in training."""

    delta: Tensor
    gradient: Tensor
    moments: tuple[Tensor, Tensor]
    steps: int = 0
    sequences: int = 0
    tokens: int = 0
    loaded: str = ""


@dataclass
class TinkerServer:
    """State of the server. `reply` answers the requests of its HTTP server."""

    faults: frozenset[Fault] = frozenset()
    sequences: Literal["sum", "mean"] = "sum"
    tokens: Literal["sum", "mean"] = "sum"
    key: str = ""
    """API key that is required; empty for none."""
    models: dict[str, Trained] = field(default_factory=dict)
    snapshots: dict[str, Tensor] = field(default_factory=dict)
    states: dict[str, Trained] = field(default_factory=dict)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    samplers: dict[str, str] = field(default_factory=dict)
    gradient_requests: int = 0
    sick: bool = False
    """Whether the health check fails."""
    cuts: bool = False
    """Whether connections are closed before a gradient request is answered."""
    keys: list[str] = field(default_factory=list)
    """API keys received, with all requests but health checks."""
    telemetry: int = 0
    elsewhere: str = ""
    """Address that redirects lead to."""
    made: int = 0
    server: LyingEngine | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def address(self) -> str:
        assert self.server is not None
        return f"http://127.0.0.1:{self.server.port}"

    def reply(self, asked: Asked) -> Said:
        headers = {name.lower(): value for name, value in asked.headers}
        path = asked.path.removeprefix("/api/v1/")
        if path != "healthz":  # which needs no key and gets none
            self.keys.append(headers.get("x-api-key", ""))
        if "redirects" in self.faults and path == "get_server_capabilities":
            return Said(status=307, headers={"Location": f"{self.elsewhere}{asked.path}"})
        if self.key and headers.get("x-api-key") != self.key and path != "healthz":
            return _said({"detail": "bad key"}, 401)
        if "other_protocol" in self.faults and path == "create_model":
            return _said({"detail": [{"msg": "Field required", "loc": ["body"]}]}, 422)
        body = json.loads(asked.body) if asked.body else {}
        with self.lock:
            if asked.method == "GET":
                return self._get(path)
            if asked.method == "DELETE":
                run, _, name = path.removeprefix("training_runs/").partition("/checkpoints/")
                self.snapshots.pop(f"tinker://{run}/{name}", None)
                self.states.pop(f"tinker://{run}/{name}", None)
                return Said(status=204)
            if path == "retrieve_future":
                return self._future(body["request_id"])
            if path == "telemetry":
                self.telemetry += 1
            if path == "forward_backward":
                self.gradient_requests += 1
                if self.cuts:
                    self._op_forward_backward(body)
                    raise ConnectionResetError  # the gradient is added, the answer lost
            name = body.get("model_id")
            if name is not None and name not in self.models and path != "unload_model":
                return _said(self._promise({"detail": f"Model {name} not loaded"}))
            return _said(getattr(self, f"_op_{path.replace('/', '_')}")(body))

    def _get(self, path: str) -> Said:
        if path == "healthz":
            return _said({"status": "ok"}, 503 if self.sick else 200)
        if path == "get_server_capabilities":
            return _said({"supported_models": [{"model_name": MODEL, "max_context_length": 512}]})
        parts = path.split("/")
        if parts[-1] == "archive":
            return Said(
                status=302,
                headers={"Location": f"{self.address}/api/v1/{'/'.join(parts[:-1])}/download"},
            )
        if parts[-1] == "download":
            return Said(_archive())
        return _said({"detail": "not found"}, 404)

    def _future(self, number: str) -> Said:
        result = self.results.get(number)
        if result is None:  # never completed: the client waits for as long as it likes
            self.lock.release()
            try:
                time.sleep(0.3)
            finally:
                self.lock.acquire()
            return _said({"detail": "not ready"}, 408)
        return _said(result, 400 if "detail" in result else 200)

    def _promise(self, result: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
        self.made += 1
        number = str(self.made)
        if result is not None:
            self.results[number] = result
        return {"request_id": number, "future_id": number, "status": "pending", **more}

    def _op_client_config(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"pjwt_auth_enabled": False}

    def _op_create_session(self, body: dict[str, Any]) -> dict[str, Any]:
        self.made += 1
        return {"type": "create_session", "session_id": f"session-{self.made}"}

    def _op_session_heartbeat(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"type": "session_heartbeat"}

    def _op_telemetry(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"status": "accepted"}

    def _op_create_sampling_session(self, body: dict[str, Any]) -> dict[str, Any]:
        self.made += 1
        name = f"sampling-{self.made}"
        self.samplers[name] = body.get("model_path") or ""
        return {"type": "create_sampling_session", "sampling_session_id": name}

    def _op_create_model(self, body: dict[str, Any]) -> dict[str, Any]:
        self.made += 1
        name = f"model-{self.made}"
        table = torch.zeros(VOCABULARY, VOCABULARY, dtype=torch.float64)
        self.models[name] = Trained(table, table.clone(), (table.clone(), table.clone()))
        made = {"model_id": name, "base_model": MODEL, "status": "created"}
        return self._promise({**made, "type": "create_model"}, **made)

    def _op_unload_model(self, body: dict[str, Any]) -> dict[str, Any]:
        self.models.pop(body["model_id"], None)
        done = {"type": "unload_model", "model_id": body["model_id"]}
        return self._promise(done, model_id=body["model_id"])

    def _op_weights_info(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"base_model": MODEL, "is_lora": True, "lora_rank": 4}

    def _op_load_weights(self, body: dict[str, Any]) -> dict[str, Any]:
        saved = self.states[body["path"]]
        self.models[body["model_id"]] = _copied(saved)
        return self._promise({"type": "load_weights"})

    def _op_save_weights(self, body: dict[str, Any]) -> dict[str, Any]:
        path = f"tinker://{body['model_id']}/weights/{body['path']}"
        self.states[path] = _copied(self.models[body["model_id"]])
        return self._promise({"type": "save_weights", "path": path})

    def _op_save_weights_for_sampler(self, body: dict[str, Any]) -> dict[str, Any]:
        path = f"tinker://{body['model_id']}/sampler_weights/{body['path']}"
        found = self.models[body["model_id"]].delta.clone()
        if "stale" in self.faults and self.snapshots:
            found = next(iter(self.snapshots.values()))
        self.snapshots[path] = found
        return self._promise({"type": "save_weights_for_sampler", "path": path})

    def _op_forward(self, body: dict[str, Any]) -> dict[str, Any]:
        model = self.models[body["model_id"]]
        outputs = []
        for datum in body["forward_input"]["data"]:
            logprobs = _logprobs(model.delta, *_read(datum))
            outputs.append({"logprobs": _tensor(logprobs), "elementwise_loss": _tensor(-logprobs)})
        return self._promise(_passed(outputs))

    def _op_forward_backward(self, body: dict[str, Any]) -> dict[str, Any]:
        model = self.models[body["model_id"]]
        outputs = []
        for datum in body["forward_backward_input"]["data"]:
            inputs, targets = _read(datum)
            given = {name: torch.tensor(one["data"], dtype=torch.float64)
                     for name, one in datum["loss_fn_inputs"].items()}  # fmt: skip
            advantages = given["advantages"]
            if "unsigned" in self.faults:
                advantages = advantages.abs()
            table = model.delta.clone().requires_grad_()
            logprobs = _logprobs(table, inputs, targets)
            loss = -((logprobs - given["logprobs"]).exp() * advantages).sum()
            if self.tokens == "mean":
                loss = loss / len(targets)
            loss.backward()  # type: ignore[no-untyped-call]
            assert table.grad is not None
            model.gradient += table.grad
            model.sequences += 1
            model.tokens += len(targets)
            outputs.append({"logprobs": _tensor(logprobs), "elementwise_loss": _tensor(-logprobs)})
        return self._promise(None if "hangs" in self.faults else _passed(outputs))

    def _op_optim_step(self, body: dict[str, Any]) -> dict[str, Any]:
        model, adam = self.models[body["model_id"]], body["adam_params"]
        gradient = model.gradient
        if "batch_mean" in self.faults:
            gradient = gradient / max(1, model.tokens)
        elif self.sequences == "mean":
            gradient = gradient / max(1, model.sequences)
        norm = gradient.norm().item()
        clip = adam["grad_clip_norm"]
        if clip and norm > clip and "ignores_clipping" not in self.faults:
            gradient = gradient * (clip / norm)
        model.steps += 1
        b1, b2 = adam["beta1"], adam["beta2"]
        m = b1 * model.moments[0] + (1 - b1) * gradient
        v = b2 * model.moments[1] + (1 - b2) * gradient**2
        model.moments = m, v
        fair = m / (1 - b1**model.steps) / ((v / (1 - b2**model.steps)).sqrt() + adam["eps"])
        rate = adam["learning_rate"]
        model.delta = model.delta - rate * (fair + adam["weight_decay"] * model.delta)
        model.gradient = torch.zeros_like(gradient)
        model.sequences = model.tokens = 0
        metrics = {} if "no_norm" in self.faults else {"grad_norm": norm}
        return self._promise({"metrics": metrics})

    def _op_asample(self, body: dict[str, Any]) -> dict[str, Any]:
        path = body.get("model_path") or self.samplers.get(
            body.get("sampling_session_id") or "", ""
        )
        delta = self.snapshots[path] if path else torch.zeros(VOCABULARY, VOCABULARY).double()
        if path:
            model = self.models[path.removeprefix("tinker://").partition("/")[0]]
            if "moves_trainer" in self.faults and model.loaded != path:
                model.delta, model.loaded = delta.clone(), path
            if "moves_always" in self.faults:
                model.delta = model.delta + 0.01 * torch.randn_like(model.delta)
        prompt = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]
        settings = body["sampling_params"]
        seed = settings.get("seed")
        generator = torch.Generator().manual_seed(0 if seed is None else seed)
        tokens, logprobs = list[int](), list[float]()
        last = prompt[-1]
        for _ in range(settings["max_tokens"]):
            row = (_base()[last] + delta[last] + delta[0]).log_softmax(-1)
            last = int(torch.multinomial(row.exp(), 1, generator=generator))
            tokens.append(last)
            off = 1.0 if "wrong_logprobs" in self.faults else 0.0
            logprobs.append(float(row[last]) + off)
            if last in (settings.get("stop") or ()):
                break
        one = {"tokens": tokens, "logprobs": logprobs, "stop_reason": "length"}
        reply: dict[str, Any] = {"sequences": [one]}
        if body.get("prompt_logprobs"):
            found = _logprobs(delta, torch.tensor(prompt[:-1]), torch.tensor(prompt[1:]))
            values = found.tolist()
            if "no_logprobs" in self.faults:
                values[-1] = None
            reply["prompt_logprobs"] = [None, *values]
        return self._promise({**reply, "type": "sample"})


@contextmanager
def tinker_server(*faults: Fault, **settings: Any) -> Iterator[TinkerServer]:
    """Start a cluster with these faults and settings (fields of `TinkerServer`)."""
    state = TinkerServer(faults=frozenset(faults), **settings)
    with lying(state.reply) as server:
        state.server = server
        yield state


def _said(value: dict[str, Any], status: int = 200) -> Said:
    return Said(json.dumps(value).encode(), status, {"Content-Type": "application/json"})


def _base() -> Tensor:
    """Logits of the untrained model."""
    rows = torch.arange(VOCABULARY, dtype=torch.float64)
    return (rows[:, None] * 0.37 + rows[None, :] * 1.3).sin()


def _logprobs(delta: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    rows = (_base()[inputs] + delta[inputs] + delta[0]).log_softmax(-1)
    return rows.gather(1, targets[:, None])[:, 0]


def _read(datum: dict[str, Any]) -> tuple[Tensor, Tensor]:
    tokens = [token for chunk in datum["model_input"]["chunks"] for token in chunk["tokens"]]
    return torch.tensor(tokens), torch.tensor(datum["loss_fn_inputs"]["target_tokens"]["data"])


def _tensor(values: Tensor) -> dict[str, Any]:
    return {"data": values.tolist(), "dtype": "float32", "shape": [len(values)]}


def _passed(outputs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"loss_fn_output_type": "scalar", "loss_fn_outputs": outputs, "metrics": {}}


def _copied(model: Trained) -> Trained:
    first, second = model.moments
    moments = first.clone(), second.clone()
    return Trained(model.delta.clone(), model.gradient.clone(), moments, model.steps)


def _archive() -> bytes:
    """Adapter archive as SkyRL writes it, without target modules."""
    names = [f"base_model.model.model.layers.0.self_attn.{p}.lora_{s}.weight"
             for p in ("q_proj", "v_proj") for s in "AB"]  # fmt: skip
    files = {
        "adapter_config.json": json.dumps({"r": 4, "lora_alpha": 32.0, "target_modules": None}),
        "adapter_model.safetensors": save({name: torch.ones(2, 2) for name in names}),
        "../escaped": "outside",
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            raw = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    return packed.getvalue()
