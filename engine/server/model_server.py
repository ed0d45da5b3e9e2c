"""OpenAI-compatible endpoint on loopback for an exported model (sampler and gateway).

Nothing is recorded: every request is a separate conversation. As in the engine, the Host header is
checked and browsers are refused. The API key is optional.
"""

import asyncio
import contextlib
import hmac
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp, Scope

from engine.export.publish import check_files, read_manifest
from engine.export.source import local_name
from engine.models.file_checks import check_folder, read_json
from engine.models.registry import find_model
from engine.policy.base import PolicySpec
from engine.policy.worker import TorchPolicy
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import ConfigError, Refused
from engine.protocol.requests.exports import ExportFormat
from engine.rollout.gateway.gateway import Gateway
from engine.rollout.gateway.sessions import Session, request_bytes
from engine.rollout.images import RunImages
from engine.rollout.rendering.chat import ChatFormat, open_chat
from engine.runtime.closing import closing
from engine.runtime.seeds import derive
from engine.server.auth import Guard, sent_key
from engine.server.connections import Connections, raise_descriptor_limit, share_of, start_serving
from engine.server.limits import HANDLERS, limited

PROVENANCE = "atelier.json"
MOST_CONTEXT = 8192
"""Default context length in tokens; memory for the KV cache grows with it."""


class Served:
    """Content of an exported folder, and the path of its base model."""

    def __init__(self, folder: Path, base: str | None) -> None:
        """Read an export. Raises ConfigError if it cannot be served, Refused if it is damaged."""
        self.folder = folder
        about = read_json(folder / PROVENANCE)
        if not about:
            raise ConfigError.of(
                "export.no_export",
                f"This is not an export of Atelier: it has no {PROVENANCE}.",
                where=str(folder),
            )
        self.kind: ExportFormat = about["format"]
        self.name = f"{about['run']['project']}-{about['run']['name']}".lower().replace(" ", "-")
        self.rank, self.alpha = int(about["rank"]), float(about["alpha"])
        self.adapt_experts = self.kind == "adapter" and about.get("adapt_experts") is True
        proven = about.get("proven_in")
        self.proven_in = proven if proven in ("float32", "bfloat16") else "auto"
        """Precision in which the export was proven equal to the trained model."""
        if self.kind == "gguf":
            raise ConfigError.of(
                "export.gguf_elsewhere",
                "GGUF files are served by llama.cpp and Ollama, not by this command.",
                f"Run `llama-server -m {folder}/model.gguf --jinja`, or export a merged model.",
            )
        if wrong := check_files(folder, read_manifest(folder)).wrong:
            raise Refused.of(
                "export.damaged",
                f"The export is damaged: {wrong[0]} was changed after it was written.",
                "Copy the export folder again, or repeat the export.",
                where=str(folder),
            )
        self.model = folder if self.kind == "merged" else _base(base, about["base"]["name"])

    def context(self, wanted: int | None) -> int:
        """Context length in tokens: `wanted` (None: the default), limited by the model."""
        most = int(read_json(self.model / "config.json").get("max_position_embeddings", 0))
        return min(wanted or MOST_CONTEXT, most or MOST_CONTEXT)


class OpenGateway(Gateway):
    """Gateway that opens a new session for every request."""

    def __init__(self, make: Callable[[int], Session], context: int) -> None:
        super().__init__()
        self._make, self._context = make, context
        self._count = 0

    def most_bytes(self, key: str) -> int:
        return request_bytes(self._context, reads_images=True)

    def session_of(self, request: Request) -> Session:
        self._count += 1
        return self._make(self._count)


class OpenGuard(Guard):
    """Authentication with an optional key; Host and Origin are always checked."""

    def __init__(
        self, app: ASGIApp, port: int, api_key: str | None, on_known: Callable[[Scope], None]
    ) -> None:
        super().__init__(app, port, api_key or "", lambda key: False, on_known)
        self._api_key = api_key

    def _is_known(self, path: str, headers: dict[bytes, list[bytes]]) -> bool:
        if self._api_key is None:
            return True
        sent = sent_key(path, headers)
        return sent is not None and hmac.compare_digest(sent, self._api_key.encode())


async def serve_model(
    served: Served,
    port: int,
    api_key: str | None,
    dtype: str,
    context: int | None,
    say_ready: Callable[[str, str], None],
) -> None:
    """Serve an exported model until a signal arrives. `api_key` None lets every client in.
    `context` is the context length (None: the default), `say_ready` receives the address and the
    model's name. Raises ConfigError if the port is in use, ModelError if the model cannot be
    loaded."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with _listen(port) as listening:
        most = served.context(context)
        async with (
            _policy(served, dtype, most) as policy,
            open_chat(served.model) as chat,
            _images(chat, most) as images,
        ):

            def make(number: int) -> Session:
                return Session(
                    chat=chat,
                    policy=policy,
                    seed=derive(0, "served", number),
                    temperature=1.0,
                    free=True,
                    max_tokens=most,
                    max_context=most,
                    max_turns=1,
                    name=served.name,
                    images=images,
                )

            port = listening.getsockname()[1]
            connections = Connections(share_of(raise_descriptor_limit()))
            gateway = OpenGateway(make, most)
            routes = Starlette(routes=gateway.routes(), exception_handlers=HANDLERS)
            app = OpenGuard(limited(routes, gateway), port, api_key, connections.prove)
            server, serving = await start_serving(app, listening, connections)
            say_ready(f"http://127.0.0.1:{port}/v1", served.name)
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            server.should_exit = True
            await serving


@contextlib.asynccontextmanager
async def _policy(served: Served, dtype: str, context: int) -> AsyncIterator[TorchPolicy]:
    """Sampler process with the exported model; a merged model gets an adapter without effect."""
    model = ModelConfig(
        name=served.name,
        dtype=dtype,  # type: ignore[arg-type]
        max_context=max(64, context),
        rank=served.rank,
        alpha=served.alpha,
        adapt_experts=served.adapt_experts,
    )
    spec = PolicySpec(model_path=str(served.model), model=model, seed=0, batch_tokens=2048)
    with tempfile.TemporaryDirectory(prefix="atelier-") as scratch:
        log = Path(scratch) / "policy.log"
        async with closing(await TorchPolicy.start(log, served.name)) as policy:
            await policy.load(spec)
            if served.kind == "adapter":
                await policy.load_adapter(served.folder)
            yield policy


@contextlib.asynccontextmanager
async def _images(chat: ChatFormat, context: int) -> AsyncIterator[RunImages]:
    """Images of the requests, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="atelier-") as scratch:
        yield RunImages(chat, Path(scratch), context)


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port), backlog=128)
    except OSError as error:
        raise ConfigError.of(
            "serve.port_taken",
            f"Cannot listen on port {port}: {error.strerror}.",
            "Choose another port with --port; 0 picks a free port.",
        ) from error


def _base(given: str | None, name: str) -> Path:
    if given:
        return check_folder(Path(given).expanduser().resolve(), given)
    return find_model(local_name(name))
