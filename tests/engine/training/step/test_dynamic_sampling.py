"""Groups without signal are replaced by further scenarios of the same step."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from engine.protocol.config.algorithm import Algorithm, PlainReward
from engine.protocol.config.project import TrainConfig
from engine.protocol.events.run import PlannedGroup, StepExtended
from engine.protocol.records.runs import Scenario, Trajectory
from engine.training.step import dynamic_sampling
from engine.training.step.dynamic_sampling import (
    Groups,
    groups_with_signal,
    planned,
    replace_groups_without_signal,
)
from engine.training.step.scenario_sampling import Choice, choose_further

SCENARIOS = [Scenario(id=f"s{n}", title=f"Scenario {n}", data={}) for n in range(8)]
CHOICE = Choice(SCENARIOS, seed=3, step=5)
SIGNAL, NO_SIGNAL = (0.0, 1.0), (1.0, 1.0)
Rewards = tuple[float | None, ...]


def group(number: int, scenario: Scenario, rewards: Rewards) -> list[Trajectory]:
    return [
        Trajectory(
            id=f"{number}.{index}",
            split="train",
            step=CHOICE.step,
            group=number,
            index=index,
            scenario_id=scenario.id,
            title=scenario.title,
            reward=reward,
        )
        for index, reward in enumerate(rewards)
    ]


class Rollouts:
    """Stub of run and stage whose further groups get the rewards of `later`, in order."""

    def __init__(self, refills: int, later: list[Rewards]) -> None:
        train = TrainConfig(groups=3, group_size=2, algorithm=Algorithm(refills=refills))
        self.run: Any = SimpleNamespace(config=SimpleNamespace(train=train), say=self.say)
        self.stage: Any = object()
        self.later = later
        self.events: list[StepExtended] = []
        self.calls: list[tuple[str, int, int, int]] = []

    async def say(self, event: StepExtended) -> None:
        self.events.append(event)

    async def roll_out_groups(
        self, run: Any, stage: Any, split: str, step: int, more: list[Scenario], size: int, at: int
    ) -> Groups:
        assert run is self.run
        assert stage is self.stage
        self.calls.append((split, step, size, at))
        rewards, self.later = self.later[: len(more)], self.later[len(more) :]
        return [
            group(number, scenario, rewards_)
            for number, (scenario, rewards_) in enumerate(zip(more, rewards, strict=True), at)
        ]

    def replace(
        self, monkeypatch: pytest.MonkeyPatch, first: list[Rewards], is_new_step: bool = True
    ) -> Groups:
        monkeypatch.setattr(dynamic_sampling, "roll_out_groups", self.roll_out_groups)
        chosen = SCENARIOS[: len(first)]
        groups = [group(n, chosen[n], rewards) for n, rewards in enumerate(first)]
        return asyncio.run(
            replace_groups_without_signal(self.run, self.stage, CHOICE, chosen, groups, is_new_step)
        )


def scenarios(groups: Groups) -> list[str]:
    return [one[0].scenario_id for one in groups]


def test_full_batch_is_not_refilled(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = Rollouts(refills=2, later=[])
    groups = rollouts.replace(monkeypatch, [SIGNAL] * 3)
    assert scenarios(groups) == ["s0", "s1", "s2"]
    assert (rollouts.calls, rollouts.events) == ([], [])


def test_each_refill_adds_the_missing_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = Rollouts(refills=5, later=[NO_SIGNAL, SIGNAL, SIGNAL])
    groups = rollouts.replace(monkeypatch, [NO_SIGNAL, SIGNAL, NO_SIGNAL])
    assert rollouts.calls == [("train", 5, 2, 3), ("train", 5, 2, 5)]
    first = choose_further(CHOICE, SCENARIOS[:3], 2)
    second = choose_further(CHOICE, SCENARIOS[:3] + first, 1)
    assert scenarios(groups) == [one.id for one in (*SCENARIOS[:3], *first, *second)]
    assert len(set(scenarios(groups))) == 6
    assert rollouts.events == [
        StepExtended(step=5, groups=planned(first, 2, 3)),
        StepExtended(step=5, groups=planned(second, 2, 5)),
    ]


def test_refills_stop_at_the_configured_number(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = Rollouts(refills=2, later=[NO_SIGNAL] * 6)
    groups = rollouts.replace(monkeypatch, [NO_SIGNAL] * 3)
    assert len(groups) == 9
    assert [at for *_, at in rollouts.calls] == [3, 6]


def test_there_are_no_refills_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = Rollouts(Algorithm().refills, later=[])
    assert len(rollouts.replace(monkeypatch, [NO_SIGNAL] * 3)) == 3


def test_replayed_step_emits_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = Rollouts(refills=1, later=[SIGNAL])
    groups = rollouts.replace(monkeypatch, [NO_SIGNAL, SIGNAL, SIGNAL], is_new_step=False)
    assert len(groups) == 4
    assert rollouts.events == []


def test_groups_with_signal_have_differing_rewards() -> None:
    rewards_by_group: list[Rewards] = [SIGNAL, NO_SIGNAL, (None, 1.0), (None, None), (0.5, 0.2)]
    groups = [group(n, SCENARIOS[n], rewards) for n, rewards in enumerate(rewards_by_group)]
    assert scenarios(groups_with_signal(groups, Algorithm())) == ["s0", "s4"]
    plain = Algorithm(advantage=PlainReward(), batch_scale="whiten")
    assert scenarios(groups_with_signal(groups, plain)) == ["s0", "s1", "s2", "s4"]


def test_planned_groups_are_numbered_in_order_() -> None:
    assert planned(SCENARIOS[:2], 4) == [
        PlannedGroup(group=0, scenario_id="s0", title="Scenario 0", size=4),
        PlannedGroup(group=1, scenario_id="s1", title="Scenario 1", size=4),
    ]
    assert [one.group for one in planned(SCENARIOS[:2], 4, 7)] == [7, 8]
