"""Calls about base models: hub search, details, models on the engine's machine, downloads."""

import json
from typing import Any

from pydantic import TypeAdapter

from engine.client.transport import Transport, parse
from engine.protocol.records.choices import ModelInfo
from engine.protocol.records.machine.hardware import Check
from engine.protocol.requests.models import (
    ActOnDownload,
    DeletedModel,
    DeleteModel,
    HubModel,
    ModelDownload,
    ModelFacts,
    ModelList,
)

HUB_TIMEOUT_S = 120.0
"""Seconds that the engine may wait for the hub."""
DOWNLOADS = TypeAdapter(list[ModelDownload])


class ModelCalls(Transport):
    """Calls about the models of the engine's machine and of the hub. Downloads continue without
    the caller."""

    async def models(self) -> list[ModelInfo]:
        return await self._list("/models", ModelInfo)

    async def local_models(self) -> ModelList:
        """List models on the engine's machine with their size and the active runs that use them,
        downloads in their order, and free disk space."""
        return await self._ask("GET", "/models/here", ModelList)

    async def search_models(self, words: str) -> list[HubModel]:
        """Search the Hugging Face Hub for `words`. Raises Refused with code
        `models.hub_unreachable` without a network."""
        params = {"words": words}
        response = await self._send("GET", "/models/search", params=params, timeout=HUB_TIMEOUT_S)
        return parse(response, TypeAdapter(list[HubModel]))

    async def model_facts(self, name: str, project: str = "", host: str = "") -> ModelFacts:
        """Details of a model by starter name, hub id or folder. Its memory need is forecast with
        the settings of `project` (a folder) on server `host` (empty: the engine's machine)."""
        params = {"name": name, "project": project, "host": host}
        return await self._ask(
            "GET", "/models/facts", ModelFacts, params=params, timeout=HUB_TIMEOUT_S
        )

    async def model_checks(self, project: str, values: dict[str, Any] | None = None) -> list[Check]:
        """Checks of the model and the agent of `project` (a folder): chat format (if the model is
        on the engine's machine), what the adapter covers, and the agent's sandbox; `values` (dotted
        key → value) replace settings. May take seconds the first time."""
        params = {"path": project} | ({"values": json.dumps(values)} if values else {})
        response = await self._send("GET", "/models/checks", params=params, timeout=HUB_TIMEOUT_S)
        return parse(response, TypeAdapter(list[Check]))

    async def model_downloads(self) -> list[ModelDownload]:
        return await self._list("/models/downloads", ModelDownload)

    async def act_on_download(self, request: ActOnDownload) -> list[ModelDownload]:
        """Start or resume, pause or cancel a download; returns all downloads."""
        response = await self._send("POST", "/models/downloads", json=request.model_dump())
        return parse(response, DOWNLOADS)

    async def delete_model(self, name: str) -> DeletedModel:
        """Delete a model from the caches. Raises Refused while an active run uses it."""
        body = DeleteModel(name=name)
        return await self._ask("POST", "/models/delete", DeletedModel, body, timeout=HUB_TIMEOUT_S)
