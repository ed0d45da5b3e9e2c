"""Groups of an update: those of the step with their labels so far, and corrected older ones.

The event that fixes them is stored once: a step that is trained again after a restart uses the same
labels, whatever was labelled since.
"""

from engine.protocol.events.run import BatchClosed, PlannedGroup
from engine.protocol.records.labels import MOST_STALE
from engine.protocol.records.runs import Trajectory
from engine.storage.run_folder.run import Run
from engine.training.labels.service import closed_batches, labelled_group


def planned_groups(groups: list[list[Trajectory]]) -> list[PlannedGroup]:
    """Number, scenario and size of each group, for the event that announces a step's groups."""
    return [
        PlannedGroup(
            group=group[0].group,
            scenario_id=group[0].scenario_id,
            title=group[0].title,
            size=len(group),
        )
        for group in groups
    ]


Groups = list[list[Trajectory]]


async def close_batch(run: Run, step: int, groups: Groups) -> tuple[Groups, Groups]:
    """Fix the labels that count for the update of a step. Returns the step's groups with these
    labels, and older groups that are trained again because they were relabelled."""
    closed = closed_batches(run)
    event = closed.get(step)
    if event is None:
        new_event = await run.say(BatchClosed(step=step, again=_corrected(run, step, closed)))
        assert isinstance(new_event, BatchClosed)
        event = new_event
    assert event.seq is not None
    until = event.seq
    spoken_of = {label.group for label in run.reader.labels("train", step)}
    own = [
        labelled_group(run, "train", step, group[0].group, until)
        if group[0].group in spoken_of
        else group
        for group in groups
    ]
    again = [labelled_group(run, "train", past, number, until) for past, number in event.again]
    return own, again


def _corrected(run: Run, step: int, closed: dict[int, BatchClosed]) -> list[tuple[int, int]]:
    """Older groups with labels that their own update did not include."""
    used = {tuple(place) for event in closed.values() for place in event.again}
    found = []
    for label in run.reader.labels("train"):
        own = closed.get(label.step)
        late = own is not None and own.seq is not None and label.seq > own.seq
        wanted = label.effect == "again" and label.holds() and late
        if wanted and 0 < step - label.step <= MOST_STALE:
            place = (label.step, label.group)
            if place not in used and place not in found:
                found.append(place)
    return found
