"""Label routes of the fake engine: the real LabelService over a run in memory."""

from pathlib import Path
from typing import Any

from engine.protocol.events import run as e
from engine.protocol.records.labels import Label
from engine.protocol.records.runs import GroupSummary, Split, Trajectory, TrajectorySummary
from engine.storage.run_db.writer import summary_of
from engine.storage.run_folder.run import RunOrders
from engine.training.labels.service import LabelService
from tests.studio.fakes.simulated_run import Made, whole


class FakeLabels:
    """In-memory stand-in for `engine.storage.run_folder.run.Run` with the reader, writer, spec,
    config and project that LabelService uses.
    """

    def __init__(self, made: Made, project: Path) -> None:
        self.orders = RunOrders(1)
        self.made, self.project = made, project
        self.spec, self.config = made.spec, made.spec.config
        project.mkdir(parents=True, exist_ok=True)  # gold.jsonl is written there
        self.kept: list[Label] = []
        self.reader = self.writer = self
        self.labeller = LabelService(self)  # type: ignore[arg-type]

    # Reader

    def labels(
        self, split: Split | None = None, step: int | None = None, group: int | None = None
    ) -> list[Label]:
        key = (split, step, group)
        return [
            one for one in self.kept if split is None or (one.split, one.step, one.group) == key
        ]

    def label(self, label_id: str) -> Label | None:
        return next((one for one in self.kept if one.id == label_id), None)

    def group(self, split: Split, step: int, group: int) -> GroupSummary | None:
        key = (split, step, group)
        groups = (g for g in self.made.groups if (g.split, g.step, g.group) == key)
        return next(groups, None)

    def stored(self, split: Split, step: int, group: int) -> list[Trajectory]:
        key = (split, step, group)
        rows = [r for r in self.made.trajectories if (r.split, r.step, r.group) == key]
        return [whole(row) for row in sorted(rows, key=lambda row: row.index)]

    def summaries(self, ids: list[str]) -> list[TrajectorySummary]:
        return [row for row in self.made.trajectories if row.id in ids]

    def trajectory(self, trajectory_id: str) -> Trajectory:
        return whole(next(r for r in self.made.trajectories if r.id == trajectory_id))

    def events_of(self, *kinds: str) -> list[e.Event]:
        return [event for event in self.made.events if event.kind in kinds]

    # Writer

    async def add_label(
        self, label: Label, group: GroupSummary, trajectories: list[Trajectory]
    ) -> None:
        stamped = label.model_copy(update={"seq": len(self.made.events) + 1})
        self.kept.append(stamped)
        self._replace(stamped, False, group, trajectories)

    async def undo_label(
        self, label: Label, group: GroupSummary, trajectories: list[Trajectory]
    ) -> None:
        place = next(i for i, one in enumerate(self.kept) if one.id == label.id)
        update = {"undone": len(self.made.events) + 1}
        self.kept[place] = label.model_copy(update=update)
        self._replace(self.kept[place], True, group, trajectories)

    def _replace(
        self, label: Label, undone: bool, group: GroupSummary, trajectories: list[Trajectory]
    ) -> None:
        rows = [
            summary_of(one).model_copy(update={"advantage": advantage})
            for one, advantage in zip(trajectories, group.advantages, strict=True)
        ]
        replaced = {row.id: row for row in rows}
        made = self.made
        made.trajectories = [replaced.get(row.id, row) for row in made.trajectories]
        key = (group.split, group.step, group.group)
        made.groups = [group if (g.split, g.step, g.group) == key else g for g in made.groups]
        made.say(e.GroupLabelled(label=label, undone=undone, group=group, trajectories=rows))


def call_label_route(labels: FakeLabels, verb: str, label: Label | None) -> Any:
    """Return the coroutine or value of the route `verb`: preview, add, undo, redo."""
    service: Any = labels.labeller
    calls = {"undo": service.undo, "redo": service.redo}
    if verb in calls:
        return calls[verb]()
    return {"preview": service.preview, "add": service.add}[verb](label)
