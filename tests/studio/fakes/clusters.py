"""Cluster routes for the fake engine: the list, keys, connection tests with given results, and
starts of SkyRL."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.integrations.skyrl.commands import launch_commands
from engine.protocol.problems import Problem
from engine.protocol.requests.clusters import (
    CheckCluster,
    ClusterList,
    ClusterModel,
    ClusterReport,
    ClusterSpec,
    ClusterView,
    LaunchCommands,
    LaunchRequest,
    LendClusterKey,
    SkyrlServer,
    SkyrlSettings,
    StartCluster,
)
from tests.studio.fakes.projects import refusal

HOSTED = ClusterSpec(name="hosted", address="https://tinker.example/services/tinker-prod")
TUNNEL = ClusterSpec(name="lab-8xh100", address="http://127.0.0.1:8000", client="tinker-json")
REPORT = ClusterReport(
    models=[
        ClusterModel(name="Qwen/Qwen3-8B", max_context=32_768),
        ClusterModel(name="Qwen/Qwen3-30B-A3B-Instruct-2507", max_context=65_536),
        ClusterModel(name="meta-llama/Llama-3.3-70B-Instruct"),
    ],
    client="tinker 0.38.0",
    seconds=1.24,
)
WRONG_KEY = Problem(
    code="cluster.key_refused",
    message="The cluster refused the API key.",
    hint="Enter the key again, or create another one in the console of the service.",
)
SETTINGS = SkyrlSettings(model="Qwen/Qwen3-8B")
SKYRL = ClusterSpec(
    name="skyrl", address="http://127.0.0.1:8123", client="tinker-json", host="box", skyrl=SETTINGS
)
OUT_OF_MEMORY = Problem(
    code="skyrl.ended",
    message="SkyRL ended while it loaded the model: out of memory on GPU 0.",
    hint="Reduce the sequences per pass, or use more GPUs.",
    detail="RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17.1GiB",
)
COMMAND = (
    "/home/mara/.atelier-engine/environments/skyrl-gpu/bin/python -m skyrl.tinker.api --base-model "
    "Qwen/Qwen3-8B --backend jax --host 127.0.0.1 --port 8123 --backend-config "
    '\'{"tensor_parallel_size": 1, "max_lora_adapters": 4, "train_micro_batch_size": 8}\''
)


def server_of(spec: ClusterSpec, state: str, **values: Any) -> SkyrlServer:
    """Return SkyRL's server of a cluster in a state."""
    fields = {
        "state": state,
        "cluster": spec.name,
        "settings": spec.skyrl,
        "port": 8123,
        "environment": "skyrl-gpu",
        "command": COMMAND,
        "log": f"/home/mara/.atelier-engine/skyrl/{spec.name}.log",
    }
    return SkyrlServer.model_validate({**fields, **values})


class FakeClusters:
    """Clusters of the fake engine; a key in `good_keys` passes the test, or any if it is empty."""

    def __init__(self) -> None:
        self.views: dict[str, ClusterView] = {}
        self.keys: dict[str, str] = {}
        self.checked: list[tuple[ClusterSpec, str]] = []
        self.good_keys: set[str] = set()
        self.pace_s = 0.0
        """Duration of a test."""
        self.starts: list[tuple[str, StartCluster]] = []
        self.stops: list[str] = []
        self.launches: list[LaunchRequest] = []
        self.lists = 0
        """Number of times that the list was requested."""

    def put(self, spec: ClusterSpec, **values: Any) -> None:
        self.views[spec.name] = ClusterView(spec=spec, **values)

    def routes(self) -> list[tuple[str, Callable[..., Any], str]]:
        return [
            ("/clusters", self._list, "GET"),
            ("/clusters", self._put, "PUT"),
            ("/clusters/check", self._check_settings, "POST"),
            ("/clusters/commands", self._commands, "POST"),
            ("/clusters/{name}", self._remove, "DELETE"),
            ("/clusters/{name}/start", self._start, "POST"),
            ("/clusters/{name}/stop", self._stop, "POST"),
            ("/clusters/{name}/check", self._check, "POST"),
            ("/clusters/{name}/key", self._lend_key, "PUT"),
        ]

    def _listed(self) -> ClusterList:
        return ClusterList(clusters=[self.views[name] for name in sorted(self.views)])

    async def _list(self, request: Request) -> ClusterList:
        self.lists += 1
        return self._listed()

    async def _put(self, request: Request) -> ClusterList:
        spec = ClusterSpec.model_validate(await request.json())
        self.put(spec, has_key=spec.name in self.keys)
        return self._listed()

    async def _remove(self, request: Request) -> ClusterList | Response:
        if self.views.pop(request.path_params["name"], None) is None:
            return refusal(404, "cluster.unknown", "There is no such cluster.")
        return self._listed()

    async def _check(self, request: Request) -> ClusterView:
        name = request.path_params["name"]
        self.views[name] = await self._test(self.views[name].spec, self.keys.get(name, ""))
        return self.views[name]

    async def _check_settings(self, request: Request) -> ClusterView:
        body = CheckCluster.model_validate(await request.json())
        return await self._test(body.spec, body.key or self.keys.get(body.spec.name, ""))

    async def _test(self, spec: ClusterSpec, key: str) -> ClusterView:
        self.checked.append((spec, key))
        await asyncio.sleep(self.pace_s)
        good = not self.good_keys or key in self.good_keys
        result = {"report": REPORT} if good else {"problem": WRONG_KEY}
        return ClusterView.model_validate({"spec": spec, "has_key": bool(key), **result})

    async def _lend_key(self, request: Request) -> Response:
        body, name = (
            LendClusterKey.model_validate(await request.json()),
            request.path_params["name"],
        )
        self.keys[name] = body.key
        self.views[name] = self.views[name].model_copy(update={"has_key": bool(body.key)})
        return Response(status_code=204)

    # SkyRL

    def serve(self, name: str, state: str, **values: Any) -> None:
        """Set the state of SkyRL's server of a listed cluster."""
        view = self.views[name]
        server = server_of(view.spec, state, **values)
        self.views[name] = view.model_copy(update={"server": server})

    async def _start(self, request: Request) -> ClusterView:
        """Start the server; it is `installing` until a test changes its state."""
        name = request.path_params["name"]
        body = StartCluster.model_validate(await request.json())
        self.starts.append((name, body))
        self.put(
            ClusterSpec(
                name=name, address="http://127.0.0.1:8123", client="tinker-json", host=body.host,
                skyrl=body.settings,
            )
        )  # fmt: skip
        self.serve(name, "installing")
        return self.views[name]

    async def _stop(self, request: Request) -> ClusterView:
        name = request.path_params["name"]
        self.stops.append(name)
        self.serve(name, "off", port=0, command="", log="")
        return self.views[name]

    async def _commands(self, request: Request) -> LaunchCommands:
        body = LaunchRequest.model_validate(await request.json())
        self.launches.append(body)
        return LaunchCommands(commands=launch_commands(body))
