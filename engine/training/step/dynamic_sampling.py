"""Dynamic sampling (DAPO, 2503.14476, §3.2): replaces groups without signal.

Input: the complete groups of a step. Output: more groups. Decisions depend only on stored rewards
and the seed, so a step that is trained again uses the same groups.
"""

from engine.protocol.config.algorithm import Algorithm
from engine.protocol.events.run import PlannedGroup, StepExtended
from engine.protocol.records.runs import Scenario, Trajectory
from engine.reward.advantage.group import has_signal
from engine.rollout.groups import roll_out_groups
from engine.rollout.rollout import Stage
from engine.storage.run_folder.run import Run
from engine.training.step.scenario_sampling import Choice, choose_further

Groups = list[list[Trajectory]]


async def replace_groups_without_signal(
    run: Run, stage: Stage, choice: Choice, chosen: list[Scenario], groups: Groups, anew: bool
) -> Groups:
    """Return `groups` (of the scenarios `chosen`) and new groups of other scenarios from `choice`,
    until `train.groups` of them have signal, in at most `train.algorithm.refills` (a setting)
    rounds. Groups without signal stay in the result; the update skips them. `anew`: the step is
    sampled for the first time, so each round stores an event."""
    train, step = run.config.train, choice.step
    for _ in range(train.algorithm.refills):
        missing = train.groups - len(groups_with_signal(groups, train.algorithm))
        if not missing:
            break
        more = choose_further(choice, chosen, missing)
        first = len(groups)
        if anew:
            plan = planned(more, train.group_size, first)
            await run.say(StepExtended(step=step, groups=plan))
        groups = groups + await roll_out_groups(
            run, stage, "train", step, more, train.group_size, first
        )
        chosen = chosen + more
    return groups


def groups_with_signal(groups: Groups, algorithm: Algorithm) -> Groups:
    """Return the groups that contribute a gradient: those whose rewards differ."""
    return [g for g in groups if has_signal(algorithm.advantage, [t.reward for t in g])]


def planned(chosen: list[Scenario], size: int, first: int = 0) -> list[PlannedGroup]:
    return [
        PlannedGroup(group=number, scenario_id=s.id, title=s.title, size=size)
        for number, s in enumerate(chosen, first)
    ]
