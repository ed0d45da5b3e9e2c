"""Sink for trackio's local database, which `trackio show` opens.

Rows are written with trackio's storage class, because `trackio.log` takes neither a unique id per
row nor the time at which it was measured.
"""

import sqlite3
from datetime import UTC, datetime
from typing import Any

from trackio.sqlite_storage import SQLiteStorage
from trackio.utils import TRACKIO_DIR

from engine.integrations.trackers.sinks.errors import Lost, SinkError


class Sink:
    """A trackio run; rows that are sent again are not duplicated."""

    url = ""

    def open(self, settings: dict[str, Any], key: str, run: dict[str, Any]) -> None:
        self._project, self._run = settings["project"] or run["project"], run
        self._config = {
            **run["settings"],
            "_Username": "atelier",
            "_Created": _time(run["started_at"]),
            "_Group": None,
        }
        self.url = str(TRACKIO_DIR / f"{self._project}.db")

    def send(self, items: list[dict[str, Any]]) -> Lost:
        rows = [item for item in items if "values" in item]
        if not rows:
            return Lost()
        try:
            SQLiteStorage.bulk_log(
                project=self._project,
                run=self._run["name"],
                metrics_list=[row["values"] for row in rows],
                steps=[row["step"] for row in rows],
                timestamps=[_time(row["at"]) for row in rows],
                config=self._config,
                log_ids=[f"{self._run['id']}-{row['seq']}" for row in rows],
                run_id=self._run["id"],
            )
        except (OSError, sqlite3.Error) as error:
            words = f"cannot write its database in {TRACKIO_DIR}: {error}."
            raise SinkError("not_written", words) from error
        return Lost()

    def close(self, state: str) -> None:
        """Do nothing: trackio has no state of a run."""


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
