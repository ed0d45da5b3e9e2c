"""Routes of base models: hub search, facts, models of this machine, downloads, deletion."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from engine.models.registry import known_models
from engine.protocol.requests.models import ActOnDownload, DeleteModel
from engine.rollout.rendering.facts import model_checks
from engine.rollout.sandbox.machine import agent_checks
from engine.server.bodies import Routes, body_of, json_list, json_of, project_of, text_of, values_of
from engine.server.composition import Services
from engine.server.services.clusters.checks import cluster_checks
from engine.storage.project import load_config

MOST_WORDS = 400
"""Longest search or name, in characters."""


class ModelRoutes:
    """HTTP routes of the Models page."""

    def __init__(self, services: Services) -> None:
        self._models, self._library = services.models, services.library

    def routes(self) -> Routes:
        return [
            ("GET", "/models", self.known),
            ("GET", "/models/here", self.here),
            ("GET", "/models/search", self.search),
            ("GET", "/models/facts", self.facts),
            ("GET", "/models/checks", self.checks),
            ("GET", "/models/downloads", self.downloads),
            ("POST", "/models/downloads", self.act),
            ("POST", "/models/delete", self.delete),
        ]

    async def known(self, request: Request) -> Response:
        return json_list(await asyncio.to_thread(known_models))

    async def here(self, request: Request) -> Response:
        return json_of(await self._models.listed())

    async def search(self, request: Request) -> Response:
        """Search the hub for `words`; the only route besides facts that asks the network."""
        return json_list(await self._models.search(text_of(request, "words")[:MOST_WORDS]))

    async def facts(self, request: Request) -> Response:
        """Respond with the facts of model `name`; its memory is forecast with the settings of
        `project` on server `host`."""
        name, query = text_of(request, "name")[:MOST_WORDS], request.query_params
        facts = await self._models.facts(name, query.get("project", ""), query.get("host", ""))
        return json_of(facts)

    async def checks(self, request: Request) -> Response:
        """Respond with the checks of the model and the agent of project `path`: chat format (if the
        model is on this machine), what the adapter covers, the agent's sandbox, and the cluster if
        one is selected; `values` (JSON by dotted key) replace settings."""
        path = project_of(request)
        config = load_config(path, values_of(request))
        checks = await asyncio.to_thread(model_checks, path, config)
        checks += await asyncio.to_thread(agent_checks, config.agent)
        runs = await asyncio.to_thread(self._library.runs, path) if config.backend.cluster else []
        return json_list(checks + await asyncio.to_thread(cluster_checks, config, runs))

    async def downloads(self, request: Request) -> Response:
        return json_list(await asyncio.to_thread(self._models.downloads.view))

    async def act(self, request: Request) -> Response:
        return json_list(await self._models.act(await body_of(request, ActOnDownload)))

    async def delete(self, request: Request) -> Response:
        return json_of(await self._models.delete((await body_of(request, DeleteModel)).name))
