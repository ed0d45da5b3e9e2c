"""Routes of the table of runs: a page of it, a person's notes, and a comparison."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from engine.protocol.records.run_notes import RunNotes
from engine.protocol.requests.run_table import CompareRuns, RunQuery
from engine.server.bodies import Routes, body_of, json_of, path_of
from engine.server.composition import Services
from engine.server.services.run_table.comparison import compare_runs
from engine.storage.run_folder.notes import write_notes

TABLE, COMPARISON = "/run_table", "/run_comparison"


class RunTableRoutes:
    def __init__(self, services: Services) -> None:
        self._library, self._table = services.library, services.run_table
        self._broadcast, self._lifecycle = services.broadcast, services.lifecycle

    def routes(self) -> Routes:
        return [
            ("POST", TABLE, self.page),
            ("POST", COMPARISON, self.compare),
            ("PUT", "/runs/{run}/notes", self.note),
        ]

    async def page(self, request: Request) -> Response:
        query = await body_of(request, RunQuery)
        return json_of(await self._table.page(query, path_of(query.project)))

    async def compare(self, request: Request) -> Response:
        body = await body_of(request, CompareRuns)
        folders = [self._library.folder(run_id) for run_id in body.runs]
        return json_of(await asyncio.to_thread(compare_runs, folders, body))

    async def note(self, request: Request) -> Response:
        notes, run_id = await body_of(request, RunNotes), request.path_params["run"]
        folder = self._library.folder(run_id)
        await asyncio.to_thread(write_notes, folder, notes)
        self._table.changed(run_id)
        self._broadcast.announce(run_id, None)
        return json_of(self._lifecycle.summary(run_id))
