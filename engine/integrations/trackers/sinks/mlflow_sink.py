"""Sink for an MLflow server, with MLflow's client.

The MLflow run has the id of the run as a tag, so that a restarted upload finds it. A metric that is
sent twice has the same key, step, time and value, and servers keep only one of them.
"""

import os

os.environ |= {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the engine tries again, and says so
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}

from typing import Any

from mlflow.entities import Experiment, Metric, Param, Run
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from engine.integrations.trackers.sinks.errors import Lost, SinkError, refused, unreachable
from engine.integrations.trackers.sinks.mlflow_names import named

MARK = "atelier.run_id"
MOST_METRICS = 1000
MOST_PARAMS = 100
LONGEST = 6000
STATES = {"running": "RUNNING", "finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


class Sink:
    """MLflow run, created if it does not exist."""

    url = ""

    def open(self, settings: dict[str, Any], key: str, run: dict[str, Any]) -> None:
        self._address = settings["uri"]
        if key:
            user, colon, password = key.partition(":")
            pair = {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}
            os.environ |= pair if colon else {"MLFLOW_TRACKING_TOKEN": key}  # of this process alone
        self._client = MlflowClient(tracking_uri=self._address)
        experiment = settings["experiment"] or run["project"]
        place = self._ask(lambda: self._experiment(experiment))
        self._id = self._ask(lambda: self._found(place, run))
        self.url = f"{self._address}/#/experiments/{place}/runs/{self._id}"

    def send(self, items: list[dict[str, Any]]) -> Lost:
        metrics = [
            Metric(named(name), value, round(item["at"] * 1000), item["step"])
            for item in items
            if "values" in item
            for name, value in item["values"].items()
        ]
        for first in range(0, len(metrics), MOST_METRICS):
            few = metrics[first : first + MOST_METRICS]
            self._ask(lambda few=few: self._client.log_batch(self._id, metrics=few))  # type: ignore[misc]
        for item in (one for one in items if "state" in one):
            self._say(item)
        return Lost()

    def close(self, state: str) -> None:
        """Do nothing: the state was sent as an item."""

    def _say(self, item: dict[str, Any]) -> None:
        status, at = STATES[item["state"]], round(item["at"] * 1000)
        if status == "RUNNING":
            self._ask(lambda: self._client.update_run(self._id, status=status))
        else:
            self._ask(lambda: self._client.set_terminated(self._id, status, at))

    def _experiment(self, name: str) -> str:
        found: Experiment | None = self._client.get_experiment_by_name(name)
        if found is None:
            return str(self._client.create_experiment(name))
        if found.lifecycle_stage != "active":
            hint = "Restore the experiment in MLflow, or set another track.mlflow.experiment."
            raise SinkError("deleted", f"lists the experiment {name} as deleted.", hint)
        return str(found.experiment_id)

    def _found(self, place: str, run: dict[str, Any]) -> str:
        """Return the id of the MLflow run, created if missing. Missing parameters are added, since
        an earlier upload may have been interrupted."""
        known = self._client.search_runs([place], f"tags.`{MARK}` = '{run['id']}'", max_results=1)
        found = known[0] if known else self._made(place, run)
        existing, run_id = found.data.params, str(found.info.run_id)
        settings = {named(key): str(value)[:LONGEST] for key, value in run["settings"].items()}
        params = [Param(key, value) for key, value in settings.items() if key not in existing]
        for first in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(run_id, params=params[first : first + MOST_PARAMS])
        return run_id

    def _made(self, place: str, run: dict[str, Any]) -> Run:
        tags = {
            MARK: run["id"],
            "atelier.kind": run["kind"],
            "atelier.version": run["version"],
            "mlflow.source.name": "atelier",
        }
        start_ms = round(run["started_at"] * 1000)
        return self._client.create_run(place, start_time=start_ms, tags=tags, run_name=run["name"])

    def _ask(self, question):  # type: ignore[no-untyped-def]
        """Call the client. Raises SinkError for its exceptions."""
        try:
            return question()
        except MlflowException as error:
            status = error.get_http_status_code()
            message = str(error)
            if "API request" in message and "failed with exception" in message:
                raise unreachable(self._address, error) from error
            if status in (401, 403):
                raise refused(f"HTTP {status}", message) from error
            raise SinkError(
                "answer", f"answers: {message.splitlines()[0][:300]}", detail=message
            ) from error
