"""Updates of the policy from the groups of one step.

The policy is scored before the update only if the algorithm needs it: KL as advantage or reward, a
value head, or several updates per step.
"""

from engine.policy.base import AdamStep, Policy, ScoreBatch, TrainBatch
from engine.protocol.records.runs import Trajectory
from engine.rollout.images import RunImages
from engine.storage.run_folder.run import Run
from engine.training.step.batch import (
    distance,
    required_scores,
    rows,
    split_into_batches,
    train_items,
    trained_tokens,
)
from engine.training.step.dynamic_sampling import groups_with_signal
from engine.training.step.metrics import Clock


async def learn(
    run: Run,
    policy: Policy,
    images: RunImages | None,
    groups: list[list[Trajectory]],
    step: int,
    clock: Clock,
) -> dict[str, float]:
    """Update the policy from all groups with signal, and make the sampler use the new weights as
    version `step`. `images`: those of the messages. Returns metrics; empty, without an update, if
    no group has signal."""
    train = run.config.train
    if train.algorithm.refills:
        groups = groups_with_signal(groups, train.algorithm)
    found = rows(groups, train.algorithm)
    if images is not None:
        found = [row._replace(images=await images.inputs(row.branch)) for row in found]
    wanted = required_scores(found, train)
    items = [] if wanted else train_items(found, train.algorithm)
    if not (wanted or any(items)):
        return {}
    seen: dict[str, float] = {}
    async with clock.phase(run, step, "training"):
        if wanted:
            scores = await policy.score(wanted)
            items = train_items(found, train.algorithm, scores)
            seen = {"kl": distance(scores)} if wanted.reference else {}
        batches = split_into_batches(groups, found, items, train)
        if train.algorithm.moving and len(batches) > 1 and not wanted:
            batches = [await with_old_logprobs(policy, batch) for batch in batches]
        adam = AdamStep(
            lr=train.lr,
            weight_decay=train.algorithm.weight_decay,
            max_grad_norm=train.algorithm.max_grad_norm,
        )
        metrics = seen | merged([await update(policy, batch, adam) for batch in batches])
    if not batches:
        return {}
    async with clock.phase(run, step, "publishing"):
        metrics |= await policy.publish(step)
    trained = sum(trained_tokens(item) for batch in batches for item in batch.items)
    return {**metrics, "lr": train.lr, "tokens_per_s/train": trained / clock.seconds("training")}


async def with_old_logprobs(policy: Policy, batch: TrainBatch) -> TrainBatch:
    """Add the trainer's current log-probs to a batch, as the reference of later ratios."""
    scores = await policy.score(ScoreBatch(items=batch.items, temperature=batch.temperature))
    items = [
        item.model_copy(update={"old_logprobs": score.logprobs})
        for item, score in zip(batch.items, scores, strict=True)
    ]
    return batch.model_copy(update={"items": items})


async def update(policy: Policy, batch: TrainBatch, step: AdamStep) -> dict[str, float]:
    return await policy.forward_backward(batch) | await policy.optim_step(step)


def merged(updates: list[dict[str, float]]) -> dict[str, float]:
    """Step metrics from those of its updates: means, except the sum of tokens and largest gap."""
    found = {}
    for name in updates[0] if updates else {}:
        values = [update[name] for update in updates]
        found[name] = sum(values) / len(values)
        if name == "tokens/forwarded":
            found[name] = sum(values)
        elif name == "logprob_gap/max":
            found[name] = max(values)
    return found
