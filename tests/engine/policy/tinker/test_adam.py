"""A reset of the moments at a cluster has the effect of a new optimizer."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.policy.base import AdamStep
from engine.policy.tinker.adam import BETA_1, BETA_2, EPSILON, ZEROING, AdamCounter


@dataclass
class Server:
    """AdamW of a cluster, as its API describes it; its step counter is never reset."""

    weights: Tensor
    moments: list[Tensor] = field(default_factory=lambda: [torch.zeros(5).double()] * 2)
    steps: int = 0

    def step(self, gradient: Tensor, adam: dict[str, float]) -> None:
        self.steps += 1
        b1, b2 = adam["beta1"], adam["beta2"]
        m = b1 * self.moments[0] + (1 - b1) * gradient
        v = b2 * self.moments[1] + (1 - b2) * gradient**2
        self.moments = [m, v]
        fair = m / (1 - b1**self.steps) / ((v / (1 - b2**self.steps)).sqrt() + adam["eps"])
        decay = adam["weight_decay"] * self.weights
        self.weights = self.weights - adam["learning_rate"] * (fair + decay)


def test_steps_after_a_reset_are_those_of_a_new_optimizer() -> None:
    torch.manual_seed(0)
    server, counter = Server(torch.randn(5).double()), AdamCounter()
    step = AdamStep(lr=3e-3, weight_decay=0.1)
    for _ in range(7):  # of another objective
        server.step(torch.randn(5).double(), counter.following(step))
        counter.count()
    server.step(torch.zeros(5).double(), ZEROING)
    counter.reset()
    ours = torch.nn.Parameter(server.weights.clone())
    fresh = torch.optim.AdamW(
        [ours], lr=step.lr, betas=(BETA_1, BETA_2), eps=EPSILON, weight_decay=step.weight_decay
    )
    for _ in range(20):
        ours.grad = torch.randn(5).double()
        server.step(ours.grad, counter.following(step))
        counter.count()
        fresh.step()
    # ε is added before the bias correction of the server's counter: a difference of its size
    torch.testing.assert_close(server.weights, ours.detach(), rtol=0, atol=1e-7)


def test_first_steps_have_the_parameters_that_were_asked_for() -> None:
    counter = AdamCounter()
    for _ in range(3):
        found = counter.following(AdamStep(lr=1e-4, weight_decay=0.2, max_grad_norm=0.5))
        assert found == {
            "learning_rate": 1e-4,
            "beta1": BETA_1,
            "beta2": BETA_2,
            "eps": EPSILON,
            "weight_decay": 0.2,
            "grad_clip_norm": 0.5,
        }
        counter.count()
