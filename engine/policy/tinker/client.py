"""Client process of a cluster, in the environment of the SDK:
`PYTHON -P isolated.py engine.policy.tinker.client LINE LIFE`. The arguments are the descriptors of
the socket for requests and of the life pipe (engine/runtime/child.py).

Only this process imports the SDK and holds the API key, in memory. Token ids, log-probs and numbers
go in and out; losses are computed elsewhere. Telemetry is off, redirects are refused, and a request
that changes weights is sent once: the SDK's own retries are replaced, since a server that repeats a
request would add its gradient twice.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engine.policy.tinker.sdk import (
    NO_KEY,
    ClientConnectionPoolType,
    announce_models,
    connect_through,
    httpx,
    problem_of,
    refuse_redirects,
    sent_once,
    tinker,
    types,
)
from engine.protocol.problems import AtelierError, PolicyError
from engine.runtime.life_pipe import exit_with_engine, hide_from_peers

LINE_LIMIT = 256 * 2**20
MOST_ADAPTER_BYTES = 16 * 2**30
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


class Client:
    """Session at one cluster: at most one model in training and one current sampler."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._address = self._key = ""
        self._service: tinker.ServiceClient | None = None
        self._training: tinker.TrainingClient | None = None
        self._samplers: dict[str, tinker.SamplingClient] = {}
        """Samplers by path; the base model's by an empty path."""
        self._base_model = ""
        self._announced = 0
        """Request that opens a model."""

    def announce(self, model_id: str) -> None:
        """Send the id of a model as soon as the server has given it one: a process that is killed
        a moment later has left it there."""
        part = {"id": self._announced, "part": {"model_id": model_id}}
        self._writer.write(json.dumps(part).encode() + b"\n")

    def take(self, message: dict[str, Any]) -> None:
        number = message["id"]
        if message["op"] == "cancel":
            if task := self._tasks.get(number):
                task.cancel()
            return
        task = asyncio.create_task(self._answer(number, message))
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number))

    async def _answer(self, number: int, message: dict[str, Any]) -> None:
        kind: str
        value: dict[str, Any]
        try:
            kind, value = "ok", await getattr(self, f"_op_{message['op']}")(message)
        except AtelierError as error:
            kind, value = "error", error.problem.model_dump()
        # the boundary: whatever the SDK or a server raises becomes a problem of this request
        except Exception as error:  # noqa: BLE001
            kind, value = "error", problem_of(error, self._key).problem.model_dump()
        self._writer.write(json.dumps({"id": number, kind: value}).encode() + b"\n")

    async def _op_connect(self, message: dict[str, Any]) -> dict[str, Any]:
        """Open a session; returns the models of the cluster."""
        self._address, self._key = message["address"], message["key"]
        if message["socket"]:
            connect_through(message["socket"], self._address)
        await self._op_health(message)  # the SDK would try for a minute
        self._service = service = await asyncio.to_thread(
            tinker.ServiceClient,
            base_url=self._address,
            api_key=self._key or NO_KEY,
            max_retries=0,  # of the HTTP client: one that adds gradients must not repeat itself
        )
        found = await service.get_server_capabilities_async()
        models = [
            {"name": model.model_name, "max_context": model.max_context_length}
            for model in found.supported_models
            if model.model_name
        ]
        return {"models": models, "client": f"tinker {tinker.__version__}"}

    async def _op_create(self, message: dict[str, Any]) -> dict[str, Any]:
        """Create a model in training, in place of the present one; returns its id."""
        service = await self._session()
        await self._unload()
        self._base_model, self._announced = message["model"], message["id"]
        self._training = await service.create_lora_training_client_async(
            base_model=self._base_model, rank=message["rank"], seed=message["seed"]
        )
        return {"model_id": self._training.model_id}

    async def _op_resume(self, message: dict[str, Any]) -> dict[str, Any]:
        """Create a model in training from a saved state with its optimizer, always a new one."""
        service = await self._session()
        await self._unload()
        self._base_model, self._announced = message["model"], message["id"]
        self._training = await service.create_training_client_from_state_with_optimizer_async(
            message["path"]
        )
        return {"model_id": self._training.model_id}

    async def _op_unload(self, message: dict[str, Any]) -> dict[str, Any]:
        """Unload the model in training or, with `model_id`, one that an ended client left."""
        if model_id := message.get("model_id"):
            await self._unload_model(model_id)
        else:
            await self._unload()
        return {}

    async def _op_forward(self, message: dict[str, Any]) -> dict[str, Any]:
        """Log-probs of the trained tokens of each item, without gradients."""
        items = message["items"]
        data = [self._datum(item, weights=True) for item in items]
        done = await (await self._trained().forward_async(data, "cross_entropy")).result_async()
        return {"logprobs": _selected(done, items)}

    async def _op_backward(self, message: dict[str, Any]) -> dict[str, Any]:
        """Add the gradient of −Σ ratio · advantage over the trained tokens of all items."""
        items = message["items"]
        data = [
            self._datum(item, logprobs=logprobs, advantages=advantages)
            for item, logprobs, advantages in zip(
                items, message["logprobs"], message["advantages"], strict=True
            )
        ]
        sent = await self._trained().forward_backward_async(data, "importance_sampling")
        done = await sent.result_async()
        return {"logprobs": _selected(done, items), "metrics": _finite(done.metrics)}

    async def _op_step(self, message: dict[str, Any]) -> dict[str, Any]:
        """Apply an AdamW step with the gradients added so far; returns the server's metrics."""
        adam = types.AdamParams(**message["adam"])
        done = await (await self._trained().optim_step_async(adam)).result_async()
        return {"metrics": _finite(done.metrics or {})}

    async def _op_snapshot(self, message: dict[str, Any]) -> dict[str, Any]:
        """Save the weights for sampling under a name; returns the path. A sampler of an earlier
        snapshot stays usable until `drop`."""
        training = self._trained()
        sent = await training.save_weights_for_sampler_async(name=message["name"])
        path = (await sent.result_async()).path
        self._samplers[path] = await self._sampler_of(path)
        return {"path": path}

    async def _op_drop(self, message: dict[str, Any]) -> dict[str, Any]:
        self._samplers.pop(message["path"], None)
        return {}

    async def _op_sample(self, message: dict[str, Any]) -> dict[str, Any]:
        sampler = await self._sampler(message["path"])
        reply = await sampler.sample_async(
            prompt=types.ModelInput.from_ints(message["tokens"]),
            num_samples=1,
            sampling_params=types.SamplingParams(**message["sampling"]),
        )
        one = reply.sequences[0]
        logprobs = [] if one.logprobs is None else list(one.logprobs)
        return {"tokens": list(one.tokens), "logprobs": logprobs, "finish": one.stop_reason}

    async def _op_score(self, message: dict[str, Any]) -> dict[str, Any]:
        """Log-probs of each token after the first, by the sampler of a path (empty: the base
        model)."""
        sampler = await self._sampler(message["path"])
        found = await asyncio.gather(
            *(
                sampler.compute_logprobs_async(types.ModelInput.from_ints(tokens))
                for tokens in message["texts"]
            )
        )
        rows = zip(found, message["texts"], strict=True)
        return {"logprobs": [_after_first(row, len(tokens)) for row, tokens in rows]}

    async def _op_save(self, message: dict[str, Any]) -> dict[str, Any]:
        """Save weights and optimizer on the cluster; returns the path."""
        sent = await self._trained().save_state_async(message["name"])
        return {"path": (await sent.result_async()).path}

    async def _op_delete(self, message: dict[str, Any]) -> dict[str, Any]:
        """Delete a snapshot or state; `deleted` is false if the server cannot."""
        rest = (await self._session()).create_rest_client()
        try:
            await rest.delete_checkpoint_async(*_parts(message["path"]))
        except tinker.APIStatusError as error:
            if error.status_code not in (404, 405, 501):
                raise
            return {"deleted": False}
        return {"deleted": True}

    async def _op_download(self, message: dict[str, Any]) -> dict[str, Any]:
        """Write the adapter of a snapshot as a PEFT folder, which must not exist."""
        rest = (await self._session()).create_rest_client()
        reply = await rest.get_checkpoint_archive_url_async(*_parts(message["path"]))
        folder = Path(message["folder"])
        archive = folder.with_name(f"{folder.name}.tar")
        try:
            await self._fetch(reply.url, archive)
            await asyncio.to_thread(_unpack, archive, folder)
        finally:
            archive.unlink(missing_ok=True)
        return {}

    async def _op_health(self, message: dict[str, Any]) -> dict[str, Any]:
        async with httpx.AsyncClient(trust_env=False) as http:
            reply = await http.get(f"{self._address}/api/v1/healthz", timeout=10.0)
            return {"healthy": reply.is_success}

    async def _op_close(self, message: dict[str, Any]) -> dict[str, Any]:
        """Unload the model and end the session."""
        await self._unload()
        return {}

    async def _unload(self) -> None:
        training, self._training = self._training, None
        self._samplers.clear()
        if training is not None:
            await self._unload_model(training.model_id)

    async def _unload_model(self, model_id: str) -> None:
        holder = (await self._session()).holder
        request = types.UnloadModelRequest(model_id=model_id)

        async def send() -> None:
            with holder.aclient(ClientConnectionPoolType.TRAIN) as http:
                with contextlib.suppress(tinker.NotFoundError):  # unloaded already
                    await http.models.unload(request=request)

        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(send(), holder.get_loop()))

    async def _session(self) -> tinker.ServiceClient:
        if self._service is None:
            raise PolicyError.of("cluster.not_connected", "The cluster is not connected.")
        holder = await asyncio.to_thread(lambda: self._service.holder)  # type: ignore[union-attr]
        holder.execute_with_retries = sent_once  # type: ignore[method-assign]
        return self._service

    def _trained(self) -> tinker.TrainingClient:
        if self._training is None:
            raise PolicyError.of("policy.not_loaded", "The cluster has loaded no model yet.")
        return self._training

    async def _sampler(self, path: str) -> tinker.SamplingClient:
        if path not in self._samplers:
            self._samplers[path] = await self._sampler_of(path)
        return self._samplers[path]

    async def _sampler_of(self, path: str) -> tinker.SamplingClient:
        service = await self._session()
        if path:
            return await service.create_sampling_client_async(model_path=path)
        return await service.create_sampling_client_async(base_model=self._base_model)

    def _datum(
        self,
        item: dict[str, Any],
        weights: bool = False,
        logprobs: list[float] | None = None,
        advantages: list[float] | None = None,
    ) -> types.Datum:
        """Datum that predicts each token from those before it, up to the last trained one. Numbers
        of the trained tokens are spread over their positions, with 0 elsewhere."""
        tokens, spans = item["tokens"], item["spans"]
        end = spans[-1][1]
        inputs: dict[str, Any] = {"target_tokens": tokens[1:end]}
        if weights:
            inputs["weights"] = _spread([1.0] * _count(spans), spans, end)
        if logprobs is not None and advantages is not None:
            inputs["logprobs"] = _spread(logprobs, spans, end)
            inputs["advantages"] = _spread(advantages, spans, end)
        return types.Datum(
            model_input=types.ModelInput.from_ints(tokens[: end - 1]), loss_fn_inputs=inputs
        )

    async def _fetch(self, url: str, archive: Path) -> None:
        """Download an archive into a new file. The API key is sent only to the cluster's own
        address, and other addresses must be encrypted. Raises PolicyError."""
        there, here = urlsplit(url), urlsplit(self._address)
        own = (there.scheme, there.netloc) == (here.scheme, here.netloc)
        if not own and there.scheme != "https":
            raise PolicyError.of(
                "cluster.other_address",
                f"The cluster keeps its adapters at an address that is not encrypted: {url[:200]}.",
                "Update the server.",
            )
        headers = {"X-API-Key": self._key} if own and self._key else {}
        client = httpx.AsyncClient(trust_env=False, timeout=60.0)
        with archive.open("xb") as file:
            async with client as http, http.stream("GET", url, headers=headers) as reply:
                reply.raise_for_status()
                async for block in reply.aiter_bytes():
                    file.write(block)
                    if file.tell() > MOST_ADAPTER_BYTES:
                        raise PolicyError.of(
                            "cluster.too_large",
                            "The cluster's adapter is larger than "
                            f"{MOST_ADAPTER_BYTES / 2**30:.0f} GiB.",
                        )


def _selected(done: types.ForwardBackwardOutput, items: list[dict[str, Any]]) -> list[list[float]]:
    rows = []
    for output, item in zip(done.loss_fn_outputs, items, strict=True):
        logprobs = output["logprobs"].tolist()
        rows.append([logprobs[n - 1] for start, end in item["spans"] for n in range(start, end)])
    return rows


def _parts(path: str) -> tuple[str, str]:
    """Training run and checkpoint of `tinker://RUN/KIND/NAME`; some servers leave KIND out."""
    run, _, checkpoint = path.removeprefix("tinker://").partition("/")
    return run, checkpoint


def _after_first(row: list[float | None], count: int) -> list[float | None]:
    """Log-probs of the tokens after the first of `count`: some servers return a number (None) for
    the first too, others none."""
    return list(row[-(count - 1) :])


def _spread(values: list[float], spans: list[list[int]], end: int) -> list[float]:
    """Values of the trained tokens at their positions among `end` − 1 targets; 0 elsewhere."""
    row, following = [0.0] * (end - 1), iter(values)
    for first, last in spans:
        for n in range(first, last):
            row[n - 1] = next(following)
    return row


def _count(spans: list[list[int]]) -> int:
    return sum(end - start for start, end in spans)


def _finite(metrics: dict[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if abs(value) < float("inf")}


def _unpack(archive: Path, folder: Path) -> None:
    """Write the two files of a PEFT adapter from a tar archive; other members are ignored."""
    found: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            if name in ADAPTER_FILES and member.isfile() and member.size < MOST_ADAPTER_BYTES:
                content = tar.extractfile(member)
                assert content is not None
                found[name] = content.read()
    if missing := [name for name in ADAPTER_FILES if name not in found]:
        raise PolicyError.of(
            "cluster.no_adapter", f"The cluster's archive has no {' and no '.join(missing)}."
        )
    folder.mkdir(parents=True)
    for name, content_bytes in found.items():
        (folder / name).write_bytes(content_bytes)


async def serve(line: int) -> None:
    refuse_redirects()
    reader, writer = await asyncio.open_connection(
        sock=socket.socket(fileno=line), limit=LINE_LIMIT
    )
    client = Client(writer)
    announce_models(client.announce)
    while text := await reader.readline():
        client.take(json.loads(text))
    os._exit(0)


def main() -> None:
    line, life = int(sys.argv[1]), int(sys.argv[2])
    hide_from_peers()
    exit_with_engine(life)
    asyncio.run(serve(line))


if __name__ == "__main__":
    main()
