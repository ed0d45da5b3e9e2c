"""Cluster routes for the fake engine: the list, keys, and connection tests with given results."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.protocol.problems import Problem
from engine.protocol.requests.clusters import (
    CheckCluster,
    ClusterList,
    ClusterModel,
    ClusterReport,
    ClusterSpec,
    ClusterView,
    LendClusterKey,
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


class FakeClusters:
    """Clusters of the fake engine; a key in `good_keys` passes the test, or any if it is empty."""

    def __init__(self) -> None:
        self.views: dict[str, ClusterView] = {}
        self.keys: dict[str, str] = {}
        self.checked: list[tuple[ClusterSpec, str]] = []
        self.good_keys: set[str] = set()
        self.pace_s = 0.0
        """Duration of a test."""

    def put(self, spec: ClusterSpec, **values: Any) -> None:
        self.views[spec.name] = ClusterView(spec=spec, **values)

    def routes(self) -> list[tuple[str, Callable[..., Any], str]]:
        return [
            ("/clusters", self._list, "GET"),
            ("/clusters", self._put, "PUT"),
            ("/clusters/check", self._check_settings, "POST"),
            ("/clusters/{name}", self._remove, "DELETE"),
            ("/clusters/{name}/check", self._check, "POST"),
            ("/clusters/{name}/key", self._lend_key, "PUT"),
        ]

    def _listed(self) -> ClusterList:
        return ClusterList(clusters=[self.views[name] for name in sorted(self.views)])

    async def _list(self, request: Request) -> ClusterList:
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
