"""Simulated evaluation of a base model, a checkpoint and a provider's model."""

import random

from engine.evaluation.results import Attempts, result_of
from engine.protocol.config.algorithm import GroupMean
from engine.protocol.config.project import ProjectConfig
from engine.protocol.events import run as e
from engine.protocol.problems import Problem
from engine.protocol.records.comparison import EvaluationResult
from engine.protocol.records.judging import Usage
from engine.protocol.records.runs import RunSpec, Scenario, Trajectory
from engine.protocol.requests.evaluation import Contestant, EvaluationPlan
from engine.reward.advantage.group import group_summary
from tests.studio.fakes.simulated_run import TITLES, Made

TAGS = ("travel", "finance", "people")
MEANS = {"base": 0.38, "amber-kestrel@40": 0.66, "openai/gpt-5.4": 0.71}
LOST = Problem(
    code="provider.timeout",
    message="The model did not answer in time.",
    hint="Raise evaluate.timeout_s or take a quicker model.",
)


def made_evaluation(scenarios: int = 24, attempts: int = 2, seed: int = 5) -> Made:
    """Return events, trajectories and groups of a whole evaluation."""
    base, tuned, remote = MEANS
    contestants = [
        Contestant(name=base, kind="base", model="smollm2-135m-instruct"),
        Contestant(
            name=tuned, kind="checkpoint", model="smollm2-135m-instruct", step=40,
            run_id="01JD5MAMBERKESTREL00000000",
        ),
        Contestant(name=remote, kind="provider", model=remote),
    ]  # fmt: skip
    plan = EvaluationPlan(
        contestants=contestants, attempts=attempts, scenarios=scenarios, source="validation",
        seed=seed,
    )  # fmt: skip
    spec = RunSpec(
        id="01JD5NCOPPERLAPWING0000000", name="copper-lapwing", kind="evaluation",
        project="inbox-scout", started_at=1_790_100_000.0, config=ProjectConfig(name="inbox-scout"),
        model_path="", evaluation=plan,
    )  # fmt: skip
    made = Made(spec, clock=spec.started_at)
    made.say(e.RunStarted(spec=spec, device="CPU · 2 cores"))
    for entry, contestant in enumerate(contestants):
        if contestant.kind != "provider":
            made.say(e.PhaseChanged(step=0, phase="loading"))
            made.say(
                e.PolicyLoaded(
                    parameters=134_515_008, trainable=4_884_480, dtype="bfloat16", seconds=3.1
                ),
                3.1,
            )
        made.say(e.PhaseChanged(step=0, phase="validating"))
        for place in range(scenarios * attempts):
            group, attempt = divmod(place, attempts)
            _add_rollout(made, contestant, group, entry * attempts + attempt)
    whole = [Trajectory(**one.model_dump()) for one in made.trajectories]
    for group in range(scenarios):
        siblings = sorted((t for t in whole if t.group == group), key=lambda t: t.index)
        summary = group_summary(GroupMean(), siblings)
        made.groups.append(summary)
        made.say(e.GroupScored(group=summary))
    made.say(e.EvaluationFinished(result=made_result(made)), 0.5)
    made.say(e.RunFinished(step=0, seconds=made.clock - spec.started_at))
    return made


def made_result(made: Made) -> EvaluationResult:
    """Compute the evaluation result of the trajectories so far, as the engine would."""
    plan = made.spec.evaluation
    assert plan is not None
    scenarios = [
        Scenario(id=f"v{n}", title=TITLES[n % len(TITLES)], data={"tag": TAGS[n % 3]})
        for n in range(plan.scenarios)
    ]
    return result_of(plan, scenarios, Attempts(made.trajectories, {}, None), judged=False)


def _add_rollout(made: Made, contestant: Contestant, group: int, index: int) -> None:
    dice = random.Random(f"{contestant.name} {group} {index}")
    hard = random.Random(group).gauss(0, 0.18)
    reward = min(1.0, max(0.0, dice.gauss(MEANS[contestant.name] + hard, 0.15)))
    remote = contestant.kind == "provider"
    lost = remote and dice.random() < 0.04
    name = f"v00000-{group:03d}-{index:03d}"
    cost = 0.0042 if remote else None
    if remote:
        made.say(e.CallOpened(key=name, judge=contestant.model, most_usd=0.02, attempt=name))
        made.say(
            e.CallClosed(
                key=name, judge=contestant.model, seconds=1.4, attempt=name,
                usage=Usage(prompt_tokens=900, completion_tokens=160, cost_usd=0.0042),
                problem=LOST if lost else None,
            ),
            1.4,
        )  # fmt: skip
    record = Trajectory(
        id=name, split="validation", step=0, group=group, index=index, scenario_id=f"v{group}",
        title=TITLES[group % len(TITLES)], reward=None if lost else round(reward, 4),
        parts={} if lost else {"answer": round(reward, 4)}, problem=LOST if lost else None,
        turns=dice.randint(2, 5), sampled_tokens=dice.randint(80, 400),
        duration_s=dice.uniform(1, 6), contestant=contestant.name,
        provider=contestant.model if remote else "", cost_usd=cost,
    )  # fmt: skip
    names = set(e.TrajectorySummary.model_fields)
    summary = e.TrajectorySummary(**{field: getattr(record, field) for field in names})
    made.trajectories.append(summary)
    made.say(e.TrajectoryRecorded(trajectory=summary), 0.4)
