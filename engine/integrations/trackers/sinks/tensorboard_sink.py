"""Sink for TensorBoard event files in the run folder, with TensorBoard's writer."""

import json
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text import metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

from engine.integrations.trackers.sinks.errors import Lost

FOLDER = "tensorboard"


class Sink:
    """Writer of a new event file per start; values in existing files are not written again."""

    def open(self, settings: dict[str, Any], key: str, run: dict[str, Any]) -> None:
        folder = Path(run["folder"]) / FOLDER
        self.url = str(folder)
        self._held = held(folder)
        self._writer = EventFileWriter(str(folder))
        if not any(tag == "config" for tag, _, _ in self._held):
            self._write_config(run)

    def send(self, items: list[dict[str, Any]]) -> Lost:
        for item in (one for one in items if "values" in one):
            step, at = item["step"], item["at"]
            new = {k: v for k, v in item["values"].items() if (k, step, at) not in self._held}
            if new:
                values = [Summary.Value(tag=tag, simple_value=v) for tag, v in new.items()]
                self._add(Summary(value=values), step, at)
                self._held |= {(tag, step, at) for tag in new}
        self._writer.flush()
        return Lost()

    def close(self, state: str) -> None:
        self._writer.close()

    def _write_config(self, run: dict[str, Any]) -> None:
        text = json.dumps(run["settings"], indent=1, sort_keys=True)
        description = metadata.create_summary_metadata("config", "Settings of the run.")
        tensor = make_tensor_proto([f"```\n{text}\n```"])
        value = Summary.Value(tag="config", metadata=description, tensor=tensor)
        self._add(Summary(value=[value]), 0, run["started_at"])

    def _add(self, summary: Summary, step: int, at: float) -> None:
        self._writer.add_event(Event(wall_time=at, step=step, summary=summary))


def held(folder: Path) -> set[tuple[str, int, float]]:
    """(tag, step, Unix time) of all values in the event files of `folder`, so that none is sent
    twice. The time distinguishes two validations of one step."""
    files = sorted(folder.glob("events.out.tfevents.*"))
    return {
        (value.tag, event.step, event.wall_time)
        for file in files
        for event in EventFileLoader(str(file)).Load()
        for value in event.summary.value
    }
