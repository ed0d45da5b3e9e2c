"""Simulated runs: events and trajectories generated from a seed."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.protocol.config.project import JudgeConfig, ProjectConfig, RewardConfig, TrainConfig
from engine.protocol.events import run as e
from engine.protocol.problems import Problem
from engine.protocol.records.conversations import Branch, Message
from engine.protocol.records.runs import (
    Checkpoint,
    Finding,
    GroupSummary,
    Interval,
    RunKind,
    RunSpec,
    Trajectory,
    TrajectorySummary,
)
from tests.studio.fakes.made_metrics import drift, lengths, signs, use

TITLES = (
    "Dana's Lisbon flight",
    "Q3 hotel invoice total",
    "Who approved the NDA?",
    "Parking at the Oslo office",
    "Refund for order 8841",
    "Board deck final version",
    "Nadia's new number",
    "Contract end date, Halden",
    "Lease renewal notice",
    "Train to Malmö, carriage",
    "Hotel for the Turin offsite",
    "Visa letter for Aiko",
)
WEIGHTS = {"ruler": 0.7, "sources": 0.2, "answer": 0.1}
RUBRIC = "Prefer the attempt that answers, cites its emails, and wastes no step.\n"
TIMEOUT = Problem(
    code="agent.timeout",
    message="The agent timed out after 120 s.",
    hint="Raise agent.timeout_s, or look where it hangs.",
)
MEMORY = Problem(
    code="policy.out_of_memory",
    message="The engine stopped: this machine ran out of memory.",
    hint="Train in smaller batches: set train.batch_tokens to 4096.",
    where="training step 13",
    detail="RuntimeError: DefaultCPUAllocator: can't allocate memory",
)


@dataclass
class Made:
    """Run as an engine would have stored it."""

    spec: RunSpec
    events: list[e.Event] = field(default_factory=list)
    trajectories: list[TrajectorySummary] = field(default_factory=list)
    groups: list[GroupSummary] = field(default_factory=list)
    clock: float = 1_790_000_000.0

    def say(self, event: e.Event, seconds: float = 0.0) -> e.Event:
        self.clock += seconds
        stamped = event.model_copy(
            update={"run_id": self.spec.id, "seq": len(self.events) + 1, "at": self.clock}
        )
        self.events.append(stamped)
        return stamped


class Simulation:
    """Simulated run, generated step by step so that a fake engine can also stream it live."""

    def __init__(
        self,
        run_id: str = "01JD5MAMBERKESTREL00000000",
        name: str = "amber-kestrel",
        project: str = "inbox-scout",
        train: TrainConfig | None = None,
        seed: int = 7,
        kind: RunKind = "train",
        clock: float = 1_790_000_000.0,
        judged: bool = False,
    ) -> None:
        self.compared: dict[int, Interval] = {}
        self.dice, self.judged = random.Random(seed), judged
        train = train or TrainConfig(steps=120, groups=8, group_size=8, validate_every=10)
        config = ProjectConfig(name=project, description="Email search", train=train)
        if judged:
            judge = JudgeConfig(enabled=True, models=("openai/o4-mini",))
            reward = RewardConfig(weights=WEIGHTS)
            config = config.model_copy(update={"judge": judge, "reward": reward})
        spec = RunSpec(
            id=run_id,
            name=name,
            kind=kind,
            project=project,
            started_at=clock,
            config=config,
            model_path="/models/smollm2-135m-instruct",
            rubric=RUBRIC if judged else "",
            versions={"atelier": "0.1.0", "torch": "2.13.0"},
        )
        self.train, self.made = train, Made(spec, clock=clock)

    def begin(self) -> None:
        say = self.made.say
        say(e.RunStarted(spec=self.made.spec, device="CPU · 2 cores"))
        say(e.PhaseChanged(step=0, phase="loading"))
        say(
            e.PolicyLoaded(
                parameters=134_515_008, trainable=4_884_480, dtype="bfloat16", seconds=3.1
            ),
            3.1,
        )
        say(e.LogWritten(level="info", source="policy", text="134.5 M parameters, 4.9 M trained"))
        self.validate(0)

    def validate(self, step: int) -> None:
        self.made.say(e.PhaseChanged(step=step, phase="validating"), 0.2)
        mean = min(0.95, 0.31 + 0.36 * step / 46 + self.dice.gauss(0, 0.015))
        scenarios = {f"v{i}": min(1.0, max(0.0, self.dice.gauss(mean, 0.28))) for i in range(24)}
        interval = Interval(mean=mean, low=mean - 0.05, high=mean + 0.05, count=24)
        self.made.say(
            e.ValidationFinished(
                step=step,
                reward=None if self.judged else interval,
                scenarios={} if self.judged else scenarios,
                unscored=0,
                seconds=9.0,
                win_rates=self.win_rates(step),
            ),
            9.0,
        )

    def win_rates(self, step: int) -> dict[int, Interval]:
        """Win rates of the validations so far, which rise with the step."""
        if not step or not self.judged:
            return {}
        mean = min(0.9, 0.5 + 0.38 * step / 46 + 0.03 * math.sin(step))
        rate = Interval(mean=mean, low=mean - 0.11, high=min(0.99, mean + 0.09), count=24)
        self.compared = {**self.compared, step: rate}
        return self.compared

    def step(self, step: int) -> None:
        for _ in self.rollouts(step):
            pass
        self.finish(step)

    def rollouts(self, step: int) -> Iterator[e.Event]:
        """Start a step and yield each event of its rollouts as it is stored."""
        say, dice, train = self.made.say, self.dice, self.train
        titles = [TITLES[(step * 3 + g) % len(TITLES)] for g in range(train.groups)]
        planned = [
            e.PlannedGroup(group=g, scenario_id=f"s{g}", title=titles[g], size=train.group_size)
            for g in range(train.groups)
        ]
        yield say(e.StepStarted(step=step, groups=planned), 0.1)
        yield say(e.PhaseChanged(step=step, phase="rolling_out"))
        slots = [(g, i) for g in range(train.groups) for i in range(train.group_size)]
        dice.shuffle(slots)
        level = min(0.9, 0.24 + 0.42 * step / 46)
        middles = [max(0.05, min(0.95, dice.gauss(level, 0.2))) for _ in range(train.groups)]
        tied = [dice.random() < 0.25 for _ in range(train.groups)]
        rewards: dict[int, dict[int, TrajectorySummary]] = {g: {} for g in range(train.groups)}
        for g, i in slots:
            record = self._trajectory(step, g, i, titles[g], middles[g], tied[g])
            rewards[g][i] = record
            self.made.trajectories.append(record)
            yield say(e.TrajectoryRecorded(trajectory=record), 75 / len(slots))
            if len(rewards[g]) == train.group_size:
                yield self._score(step, g, titles[g], rewards[g])

    def extend(self, step: int) -> None:
        """Add one more group like dynamic sampling does."""
        g, size, title = self.train.groups, self.train.group_size, TITLES[step]
        plan = e.PlannedGroup(group=g, scenario_id=f"s{g}", title=title, size=size)
        self.made.say(e.StepExtended(step=step, groups=[plan]))
        records = {i: self._trajectory(step, g, i, title, 0.5, False) for i in range(size)}
        for record in records.values():
            self.made.trajectories.append(record)
            self.made.say(e.TrajectoryRecorded(trajectory=record), 1.0)
        self._score(step, g, title, records)

    def _trajectory(
        self, step: int, g: int, i: int, title: str, middle: float, tied: bool
    ) -> TrajectorySummary:
        dice = self.dice
        broken = dice.random() < 0.005
        reward = middle if tied else max(0.0, min(1.0, dice.gauss(middle, 0.18)))
        parts = {"sources": reward * 0.3, "answer": reward * 0.75, "turn cost": -0.05 * reward}
        if self.judged:
            extra = random.Random(f"{self.made.spec.id} {step} {g} {i}")
            sources = 1.0 if tied else min(1.0, max(0.0, reward + extra.gauss(0, 0.2)))
            parts = {"ruler": round(reward, 2), "sources": round(sources, 2), "answer": 1.0}
            reward = sum(WEIGHTS[name] * value for name, value in parts.items())
        return TrajectorySummary(
            id=f"{self.made.spec.id[-4:]}-{step:04}-{g:02}-{i:02}",
            split="train",
            step=step,
            group=g,
            index=i,
            scenario_id=f"s{g}",
            title=title,
            reward=None if broken else round(reward, 4),
            parts={} if broken else {k: round(v, 4) for k, v in parts.items()},
            problem=TIMEOUT if broken else None,
            turns=dice.randint(2, 6),
            sampled_tokens=dice.randint(90, 480),
            truncated=dice.random() < 0.04,
            duration_s=dice.uniform(2, 9),
        )

    def _score(
        self, step: int, g: int, title: str, records: dict[int, TrajectorySummary]
    ) -> e.Event:
        rewards = [records[i].reward for i in sorted(records)]
        scored = [r for r in rewards if r is not None]
        mean = sum(scored) / len(scored) if scored else None
        std = (
            (sum((r - mean) ** 2 for r in scored) / len(scored)) ** 0.5
            if mean is not None
            else None
        )
        advantages = [None if r is None or mean is None else round(r - mean, 4) for r in rewards]
        group = GroupSummary(
            split="train",
            step=step,
            group=g,
            scenario_id=f"s{g}",
            title=title,
            rewards=rewards,
            advantages=advantages,
            mean=mean,
            std=std,
            signal=bool(std and std > 1e-6),
        )
        self.made.groups.append(group)
        first = len(self.made.trajectories) - self.train.groups * self.train.group_size
        for place in range(max(0, first), len(self.made.trajectories)):
            trajectory = self.made.trajectories[place]
            if trajectory.step == step and trajectory.group == g:
                update = {"advantage": advantages[trajectory.index]}
                self.made.trajectories[place] = trajectory.model_copy(update=update)
        return self.made.say(e.GroupScored(group=group))

    def finish(self, step: int) -> None:
        say, dice, train = self.made.say, self.dice, self.train
        say(e.PhaseChanged(step=step, phase="training"))
        groups = self.made.groups[-train.groups :]
        no_signal = sum(not g.signal for g in groups) / len(groups)
        scored = [r for g in groups for r in g.rewards if r is not None]
        mean = sum(scored) / len(scored)
        skipped = no_signal > 0.6
        metrics = {
            "reward/mean": mean,
            "reward/std": 0.2,
            "reward/part/sources": mean * 0.3,
            "reward/part/answer": mean * 0.75,
            "reward/part/turn cost": -0.03 + dice.gauss(0, 0.008),
            "groups/no_signal": no_signal,
            "groups/std_mean": sum(g.std or 0 for g in groups) / len(groups),
            "unscored": float(sum(r is None for g in groups for r in g.rewards)),
            "trajectories": float(len(groups) * train.group_size),
            "loss": -0.01 + dice.gauss(0, 0.004),
            "grad_norm": abs(dice.gauss(0.4, 0.1)),
            "entropy": 1.25 - 0.011 * min(step, 50) + dice.gauss(0, 0.02),
            "kl": 0.0006 * step + abs(dice.gauss(0, 0.002)),
            "reward/max": min(1.0, mean + 0.3),
            **drift(dice),
            **use(dice),
            **signs(random.Random(step)),
            "clip/low": abs(dice.gauss(0.01, 0.004)),
            "clip/high": abs(dice.gauss(0.014, 0.004)),
            **lengths(step),
            "truncated": abs(dice.gauss(0.03, 0.01)),
            "tokens_per_s/sample": 290 + dice.gauss(0, 12),
            "tokens_per_s/train": 480 + dice.gauss(0, 15),
            "time_s/rolling_out": 75 + dice.gauss(0, 4),
            "time_s/training": 48 + dice.gauss(0, 3),
            "time_s/publishing": 2.5,
            "time_s/step": 126 + dice.gauss(0, 5),
            "lr": train.lr,
        }
        say(e.PhaseChanged(step=step, phase="publishing"), 48)
        reason = "No group had a difference to learn from." if skipped else ""
        say(e.StepFinished(step=step, skipped=skipped, reason=reason, metrics=metrics), 2.5)
        if no_signal >= 0.37:
            self._diagnose(step, round(no_signal * len(groups)), len(groups))
        elif step % 6 == 0:
            say(e.DiagnosisChanged(step=step, findings=[]))
        if train.validate_every and step % train.validate_every == 0:
            self.validate(step)
        if step % train.checkpoint_every == 0 or step == train.steps:
            self.keep(step, {"reward/mean": mean})

    def _diagnose(self, step: int, still: int, groups: int) -> None:
        finding = Finding(
            code="no_signal",
            title=f"{still / groups:.0%} of the groups gave no signal.".replace("%", " %"),
            words="Every rollout in these groups got the same reward, so they contribute no "
            "gradient.",
            suggestion="Give partial credit in the reward, warm up on a few demonstrations, or "
            "sample more rollouts.",
            where="no_signal",
        )
        self.made.say(e.DiagnosisChanged(step=step, findings=[finding]))

    def keep(self, step: int, metrics: dict[str, float]) -> None:
        checkpoint = Checkpoint(
            step=step,
            path=f"checkpoints/step-{step:06}",
            bytes=19_600_000,
            at=self.made.clock,
            metrics=metrics,
        )
        self.made.say(e.CheckpointSaved(checkpoint=checkpoint), 0.4)

    def end(self, step: int) -> None:
        self.made.say(e.RunFinished(step=step, seconds=step * 126.0, checkpoint="last"))

    def fail(self, step: int) -> None:
        self.made.say(e.RunFailed(step=step, problem=MEMORY))


WORDS = (
    "The first result is an itinerary from March . Flights are often retimed , so I will check "
    "for a later change before answering ."
)


def whole(summary: TrajectorySummary) -> Trajectory:
    """Return a full trajectory of a summary: tool calls, answer, tokens."""
    dice = random.Random(summary.id)
    messages = [
        Message(role="system", content="You answer questions about an inbox of 1,204 emails."),
        Message(role="user", content=f"{summary.title}: when, who, and where is it written?"),
    ]
    branch = Branch(tokens=[], spans=[], logprobs=[], pieces=[])
    _extend(branch, " ".join(m.content for m in messages), dice, trained=False)
    for turn in range(max(1, summary.turns - 1)):
        call = {
            "id": f"call_{turn}",
            "type": "function",
            "function": {
                "name": dice.choice(["search_inbox", "read_email"]),
                "arguments": f'{{"keywords": ["TP {dice.randint(1000, 1100)}", "schedule"]}}',
            },
        }
        content = WORDS.replace(" .", ".").replace(" ,", ",") if turn % 2 else ""
        messages.append(Message(role="assistant", content=content, tool_calls=[call]))
        _extend(branch, content + " search_inbox ( keywords )", dice, trained=True)
        failed = dice.random() < 0.15
        result = "Error: no email with this id." if failed else "msg_2231 · Change to your booking"
        messages.append(Message(role="tool", content=result, tool_call_id=f"call_{turn}"))
        _extend(branch, result, dice, trained=False)
    answer = f"Dana lands at {dice.randint(12, 18)}:10: TP 1041 was moved on 12 May."
    messages.append(Message(role="assistant", content=answer))
    _extend(branch, answer, dice, trained=True)
    _time(branch, random.Random(f"{summary.id} times"), summary.duration_s)
    return Trajectory(
        **summary.model_dump(),
        messages=messages,
        branches=[branch],
        metrics={"turns": float(summary.turns), "found": 1.0},
        output="looked up 4 emails\n" if dice.random() < 0.5 else "",
        policy_version=max(0, summary.step - 1),
        seed=dice.randint(0, 2**31),
    )


def _time(branch: Branch, dice: random.Random, duration_s: float) -> None:
    """Spread the model calls over the duration, with tools between them."""
    share = duration_s / max(1, len(branch.spans))
    for place in range(len(branch.spans) if duration_s else 0):
        start_s = place * share
        branch.times.append((start_s, start_s + share * dice.uniform(0.5, 0.95)))


def _extend(branch: Branch, text: str, dice: random.Random, trained: bool) -> None:
    pieces = [f" {word}" for word in text.split()]
    start = len(branch.tokens)
    branch.tokens.extend(dice.randint(0, 49_000) for _ in pieces)
    branch.pieces.extend(pieces)
    if trained and pieces:
        branch.spans.append((start, len(branch.tokens)))
        branch.logprobs.extend(-dice.expovariate(1.6) for _ in pieces)


SMALL = TrainConfig(steps=6, groups=3, group_size=4, validate_every=3, checkpoint_every=2)
