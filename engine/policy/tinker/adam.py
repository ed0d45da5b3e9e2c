"""AdamW of a cluster: parameters of each step, and a reset that no cluster offers.

A step with learning rate 0, β = 0 and a gradient of 0 sets both moments to 0 (1412.6980, algorithm
1). The server's step counter t goes on, so its bias correction √(1 − β₂^t) / (1 − β₁^t) is that of
an old optimizer; the learning rate is scaled by the quotient of the correction that is wanted and
that which the server applies.
"""

import math

from pydantic import BaseModel

from engine.policy.base import AdamStep

BETA_1, BETA_2, EPSILON = 0.9, 0.99, 1e-8
ZEROING = {
    "learning_rate": 0.0,
    "beta1": 0.0,
    "beta2": 0.0,
    "eps": EPSILON,
    "weight_decay": 0.0,
    "grad_clip_norm": 0.0,
}
"""Step that sets the moments to the gradient and its square."""


class AdamCounter(BaseModel):
    """Steps of a model in training at a cluster."""

    steps: int = 0
    """Steps that the server has counted."""
    reset_after: int = 0
    """Steps before the latest reset."""

    def following(self, step: AdamStep) -> dict[str, float]:
        """Parameters of the next step, which has the effect of `step` on an optimizer that began
        at the latest reset."""
        number = self.steps + 1
        scale = _correction(number - self.reset_after) / _correction(number)
        return {
            "learning_rate": step.lr * scale,
            "beta1": BETA_1,
            "beta2": BETA_2,
            "eps": EPSILON,
            "weight_decay": step.weight_decay / scale,  # the decay is multiplied by the rate
            "grad_clip_norm": step.max_grad_norm,
        }

    def count(self) -> None:
        self.steps += 1

    def reset(self) -> None:
        self.steps += 1
        self.reset_after = self.steps


def _correction(steps: int) -> float:
    return math.sqrt(1 - BETA_2**steps) / (1 - BETA_1**steps)
