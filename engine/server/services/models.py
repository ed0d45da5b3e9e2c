"""Base models for the Models page: hub search, facts and fit, local models, downloads, deletion."""

import asyncio
import time
from collections import defaultdict
from pathlib import Path

from engine.hardware.devices import cards_of
from engine.hardware.model_fit import fit_of
from engine.models.facts import Known, known_facts, known_here, known_on_hub
from engine.models.hub import MOST_FOUND, search_hub
from engine.models.jobs import DownloadQueue
from engine.models.local import delete_model, disk_size, installed_folder, local_models
from engine.models.partial import free_bytes
from engine.models.registry import STARTERS, hub_cache, is_hub_name, starter_called
from engine.protocol.config.project import BackendConfig, ProjectConfig
from engine.protocol.problems import AtelierError, Refused
from engine.protocol.records.machine.hardware import Card
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.models import (
    ActOnDownload,
    DeletedModel,
    HubModel,
    LocalModel,
    ModelDownload,
    ModelFacts,
    ModelFit,
    ModelList,
)
from engine.protocol.requests.remote import HostReport
from engine.remote.registry import HostService
from engine.server.services.library import Library
from engine.storage.project import load_config
from engine.storage.run_folder.run import read_spec

FRESH_S = 600.0
"""Seconds for which facts read from the hub are used again."""
BUSY = ACTIVE_STATES | {"queued"}


class ModelService:
    """Models of this machine and of the hub. The network is asked only by `search` and `facts`."""

    def __init__(self, library: Library, hosts: HostService) -> None:
        self._library, self._hosts = library, hosts
        self.downloads = DownloadQueue(on_change=self._forget_facts)
        self._facts: dict[str, tuple[float, Known]] = {}

    @property
    def pids(self) -> set[int]:
        """PIDs of the download processes."""
        return self.downloads.pids

    @property
    def busy(self) -> bool:
        return self.downloads.busy

    async def close(self) -> None:
        """Stop all downloads; any engine can resume them."""
        await self.downloads.close()

    async def search(self, words: str) -> list[HubModel]:
        """Search the Hugging Face hub for models that match `words`. Raises ModelError if the hub
        cannot be reached."""
        return await asyncio.to_thread(search_hub, words, self.downloads.token)

    async def facts(self, name: str, project: str = "", host: str = "") -> ModelFacts:
        """Facts of a model by any name: of its files here, else of the hub. Its memory is forecast
        with the settings of `project` (a folder; empty: defaults) on server `host` (empty: this
        machine). Raises ModelError, ConfigError, Refused."""
        known = await self._known(name)
        facts = await asyncio.to_thread(known_facts, known)
        fit = await asyncio.to_thread(self._fit, known, project, host)
        return facts.model_copy(update={"fit": fit})

    async def listed(self) -> ModelList:
        """Models on this machine with their users, the downloads, and the disk."""
        return await asyncio.to_thread(self._listed)

    async def act(self, request: ActOnDownload) -> list[ModelDownload]:
        """Start or resume, pause or cancel a download, as `request.action` says; returns all
        downloads. Raises Refused for a text that cannot be a model's name."""
        name = request.name
        if starter := starter_called(name):
            name = starter.name
        elif not is_hub_name(name):
            raise Refused.of(
                "models.bad_name", f"{name} is not a Hugging Face model id.", "Write ORG/NAME."
            )
        match request.action:
            case "start":
                self.downloads.start(name, request.weights)
            case "pause":
                await self.downloads.pause(name)
            case "cancel":
                await self.downloads.cancel(name)
        return await asyncio.to_thread(self.downloads.view)

    async def delete(self, name: str) -> DeletedModel:
        """Delete a model from the caches. Raises Refused while an active run uses it."""
        runs = await asyncio.to_thread(self._runs_of, name)
        if active := await asyncio.to_thread(self._active_on, name, runs):
            raise Refused.of(
                "models.in_use",
                f"{name} is used by {active[0]}"
                + (f" and {len(active) - 1} more runs." if len(active) > 1 else "."),
                "Wait for the run, or stop it first.",
            )
        freed = await asyncio.to_thread(delete_model, name)
        self._forget_facts()
        return DeletedModel(name=name, freed_bytes=freed, runs=len(runs))

    async def _known(self, name: str) -> Known:
        if here := await asyncio.to_thread(known_here, name):
            return here
        read_at, known = self._facts.get(name, (0.0, None))
        if known is None or time.monotonic() - read_at > FRESH_S:
            known = await asyncio.to_thread(known_on_hub, name, self.downloads.token)
            if len(self._facts) > 4 * MOST_FOUND:
                self._facts.clear()
            self._facts[name] = (time.monotonic(), known)
        return known

    def _forget_facts(self) -> None:
        self._facts.clear()

    def _fit(self, known: Known, project: str, host: str) -> ModelFit:
        config = load_config(Path(project)) if project else ProjectConfig()
        words = f"the settings of {Path(project).name}" if project else "default settings"
        cards, memory, device = cards_of(config.backend), None, ""
        if host:
            report = self._hosts.host(host).view().report
            if report is None:
                return ModelFit(unknown=f"Server {host} was not checked yet.", settings=words)
            cards, memory = cards_of_server(report, config.backend), report.memory_bytes
            names = [card.name for card in cards] or ["CPU"]
            device = f"{host} · {', '.join(names)}"
        fit = fit_of(
            known.counts,
            config,
            cards,
            memory,
            device,
            known.summary.parameters,
            known.counts_unknown,
        )
        return fit.model_copy(update={"settings": words})

    def _listed(self) -> ModelList:
        users = self._projects_by_model()
        models = local_models(name for name in users if Path(name).expanduser().is_dir())
        runs = defaultdict[str, list[RunSummary]](list)
        for run in self._library.all_runs():
            if not run.host:
                runs[_key(run.model)].append(run)
        folder = hub_cache()
        return ModelList(
            models=[_used(model, users, runs[_key(model.name)]) for model in models],
            downloads=self.downloads.view(),
            folder=str(folder),
            free_bytes=free_bytes(folder),
            disk_bytes=disk_size(folder),
        )

    def _projects_by_model(self) -> dict[str, list[str]]:
        """Return model name → names of the projects whose settings name it."""
        found = defaultdict[str, list[str]](list)
        for path in self._library.projects():
            try:
                config = load_config(path)
            except AtelierError:  # the project's own page says what is wrong with it
                continue
            found[_key(config.model.name)].append(config.name or path.name)
        return found

    def _active_on(self, name: str, runs: list[RunSummary]) -> list[str]:
        """Return the names of active runs that use a model, by its name (`runs`) or by a folder of
        it."""
        folder = installed_folder(name)
        found = {run.id: run.name for run in runs if run.state in BUSY}
        for run in self._library.all_runs(only_recent=True):
            if run.state in BUSY and not run.host and folder is not None:
                try:
                    path = read_spec(Path(run.path)).model_path
                except AtelierError:  # a damaged run, which cannot be active
                    continue
                if path and Path(path).resolve().is_relative_to(folder.resolve()):
                    found[run.id] = run.name
        return list(found.values())

    def _runs_of(self, name: str) -> list[RunSummary]:
        runs = self._library.all_runs()
        return [run for run in runs if not run.host and _key(run.model) == _key(name)]


def cards_of_server(report: HostReport, backend: BackendConfig) -> tuple[Card, ...]:
    """GPUs that a run with these settings computes on at a surveyed server; empty for the CPU."""
    if report.engine == "engine-cpu":
        return ()
    wanted = backend.processes + (backend.sampler == "vllm")
    return tuple(
        Card(index=index, uuid="", name=card.name, total_bytes=card.memory_bytes)
        for index, card in enumerate(report.cards[:wanted])
    )


def _used(model: LocalModel, users: dict[str, list[str]], runs: list[RunSummary]) -> LocalModel:
    return model.model_copy(
        update={
            "projects": tuple(users.get(_key(model.name), ())),
            "runs": len(runs),
            "active_runs": tuple(run.name for run in runs if run.state in BUSY),
        }
    )


def _key(name: str) -> str:
    """Return the name under which models are compared; starters are found in any case."""
    starter = next((one for one in STARTERS if one.name == name.lower()), None)
    return starter.name if starter else name
