"""SFT learning rates against transformers' schedules, batching, and early stopping."""

from itertools import chain

import pytest
import torch
from transformers import get_scheduler

from engine.training.sft.schedule import Schedule, batch_at, exceeds_patience, rate_at, updates_of


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
@pytest.mark.parametrize(("updates", "warmup"), [(40, 0.1), (7, 0.5), (30, 0.0)])
def test_learning_rates_equal_transformers_shifted_by_one_update(
    schedule: Schedule, updates: int, warmup: float
) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2e-4)
    warmup_updates = (
        sum(rate_at(n, updates, 1.0, "constant", warmup) < 1 for n in range(1, updates)) + 1
    )
    name = "constant_with_warmup" if schedule == "constant" else schedule
    scheduler = get_scheduler(name, optimizer, warmup_updates if warmup else 0, updates + 1)
    for update in range(1, updates + 1):
        optimizer.step()
        scheduler.step()
        ours = rate_at(update, updates, 2e-4, schedule, warmup)
        assert ours == pytest.approx(scheduler.get_last_lr()[0], rel=1e-9)
        assert ours > 0


def test_each_epoch_takes_every_example_once_in_its_own_order() -> None:
    examples = list(range(7))
    assert updates_of(7, 3, 2) == 6
    batches = [batch_at(examples, update, 3, 5, "sft") for update in range(1, 7)]
    assert [len(batch) for batch in batches] == [3, 3, 1, 3, 3, 1]
    epochs = [[*chain(*batches[:3])], [*chain(*batches[3:])]]
    assert [sorted(epoch) for epoch in epochs] == [examples, examples]
    assert epochs[0] != epochs[1]
    assert batch_at(examples, 4, 3, 5, "sft") == batches[3]
    other = [batch_at(examples, update, 3, 6, "sft") for update in range(1, 7)]
    assert other != batches


@pytest.mark.parametrize(
    ("losses", "patience", "ends"),
    [
        ([], 1, False),
        ([3.0, 2.0, 1.0], 1, False),
        ([3.0, 2.0, 2.0], 1, True),
        ([3.0, 2.0, 2.5], 2, False),
        ([3.0, 2.0, 2.5, 2.4], 2, True),
        ([3.0, 2.0, 2.5, 2.4], None, False),
    ],
)
def test_exceeds_patience_after_updates_without_improvement(
    losses: list[float], patience: int | None, ends: bool
) -> None:
    assert exceeds_patience(losses, patience) is ends
