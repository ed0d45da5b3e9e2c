"""Groups that are known before they are tried, or were made elsewhere, as the events say them."""

from engine.protocol.events.run import PlannedGroup
from engine.protocol.records.runs import Trajectory


def planned_groups(groups: list[list[Trajectory]]) -> list[PlannedGroup]:
    """Planned groups of an event, each described by its first trajectory."""
    return [
        PlannedGroup(
            group=group[0].group,
            scenario_id=group[0].scenario_id,
            title=group[0].title,
            size=len(group),
        )
        for group in groups
    ]
