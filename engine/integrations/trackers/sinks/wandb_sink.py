"""Sink for Weights & Biases: online, or files in the run folder for `wandb sync`.

W&B's step is the `seq` of an event, which only grows. When a run is opened again, the last one is
read from the server or, offline, from the files. The step axis is ART's `training_step`.
"""

import os
from pathlib import Path
from typing import Any

os.environ |= {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}

import wandb
from wandb.errors import AuthenticationError, CommError, UsageError

from engine.integrations.trackers.sinks.errors import Lost, SinkError, refused, unreachable
from engine.integrations.trackers.sinks.wandb_file import last_step

AXIS = "training_step"
"""Name of the step axis, as in ART."""
CLOUD = "https://api.wandb.ai"
OPEN_S = 30.0
FINISH_S = 15.0
FLUSH_EVERY_S = 1.0


class Sink:
    """W&B run, resumed by its id."""

    url = ""

    def open(self, settings: dict[str, Any], key: str, run: dict[str, Any]) -> int:
        offline = settings["mode"] == "offline"
        folder = Path(run["folder"])
        address = settings["host"] or CLOUD
        if key and not offline:
            os.environ["WANDB_API_KEY"] = key  # of this process alone
        try:
            self._run = wandb.init(
                project=settings["project"] or run["project"],
                entity=settings["entity"] or None,
                id=run["id"].lower(),
                name=run["name"],
                job_type=run["kind"],
                config=run["settings"],
                mode=settings["mode"],
                dir=folder,
                resume="allow",
                settings=_settings(settings["host"]),
            )
        except (AuthenticationError, UsageError) as error:
            raise refused("not a valid key", str(error)) from error
        except CommError as error:
            if "401" in str(error) or "403" in str(error) or "permission" in str(error).lower():
                raise refused("permission denied", str(error)) from error
            raise unreachable(address, error) from error
        self.url = self._run.url or str(folder / "wandb")
        self._run.define_metric(AXIS)
        self._run.define_metric("*", step_metric=AXIS)
        self._held = last_step(folder) if offline else self._run.starting_step - 1
        return max(0, self._held)

    def send(self, items: list[dict[str, Any]]) -> Lost:
        for item in items:
            if "values" in item and item["seq"] > self._held:
                row = {AXIS: item["step"], **item["values"]}
                self._run.log(row, step=item["seq"], commit=True)
                self._held = item["seq"]
        return Lost()

    def close(self, state: str) -> None:
        """Finish the run in this state. Raises SinkError if data could not be uploaded in time."""
        self._run.summary["atelier/state"] = state
        try:
            self._run.finish(exit_code=1 if state == "failed" else 0)
        except TimeoutError as error:
            words = f"did not receive everything within {FINISH_S:g} s."
            hint = "Upload the rest with `wandb sync` in the run folder."
            raise SinkError("unfinished", words, hint) from error


def _settings(host: str) -> wandb.Settings:
    return wandb.Settings(
        console="off",
        disable_git=True,
        disable_code=True,
        disable_job_creation=True,
        save_code=False,
        silent=True,
        init_timeout=OPEN_S,
        finish_timeout=FINISH_S,
        finish_timeout_raises=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_transaction_log_flush_interval=FLUSH_EVERY_S,
        **({"base_url": host} if host else {}),
    )
