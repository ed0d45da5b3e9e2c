"""Token advantages from trajectory advantages (credit assignment). Pure functions.

Inputs are numbers of trained tokens in sampling order, one branch of a trajectory after another.
Prompt and observation tokens are absent, so recursions over tokens continue across them. `batch.py`
calls these functions.
"""

import math
from collections.abc import Hashable, Iterable, Sequence

from engine.protocol.config.algorithm import Advantage
from engine.reward.advantage.group import TIE, advantages


def turn_returns(rewards_K: Sequence[float], discount: float) -> list[float]:
    """Returns of K turns: R_k = r_k + discount · R_{k+1}."""
    returns: list[float] = []
    later = 0.0
    for reward in reversed(rewards_K):
        later = reward + discount * later
        returns.append(later)
    return returns[::-1]


def terminal_rewards(reward: float, count: int) -> list[float]:
    """Rewards of `count` turns or tokens: all 0 but the last."""
    return [0.0] * (count - 1) + [reward] if count else []


def by_turn(reward: float, rewards_K: Sequence[float], count: int) -> list[float]:
    """Rewards by turn that sum to `reward`: the known ones (`rewards_K`), with the remainder added
    to the last turn. If `rewards_K` is empty, the last of `count` turns gets all."""
    if not rewards_K:
        return terminal_rewards(reward, count)
    rest = reward - math.fsum(rewards_K)
    return [*rewards_K[:-1], rewards_K[-1] + rest]


def turn_advantages(
    kind: Advantage, anchors_GK: Sequence[Sequence[Hashable]], returns_GK: Sequence[Sequence[float]]
) -> list[list[float]]:
    """Advantage of each turn relative to the group's turns from the same state (GiGPO, 2505.10978):
    `kind` over their returns. `anchors_GK` identify the states. A turn whose state no other turn
    shares gets 0."""
    alike: dict[Hashable, list[tuple[int, int]]] = {}
    for g, anchors_K in enumerate(anchors_GK):
        for k, anchor in enumerate(anchors_K):
            alike.setdefault(anchor, []).append((g, k))
    found = [[0.0] * len(anchors_K) for anchors_K in anchors_GK]
    for places in alike.values():
        values = advantages(kind, [returns_GK[g][k] for g, k in places])
        for (g, k), value in zip(places, values, strict=True):
            found[g][k] = value or 0.0
    return found


def gae(
    rewards_T: Sequence[float], values_T: Sequence[float], discount: float, decay: float
) -> list[float]:
    """Generalised advantage estimates (1506.02438, eq. 16) of one episode that ends after T tokens:
    δ_t = r_t + γ V_{t+1} − V_t, A_t = δ_t + γ λ A_{t+1}, with V = A = 0 behind the end; γ is
    `discount`, λ is `decay`."""
    found: list[float] = []
    later = next_value = 0.0
    for reward, value in zip(reversed(rewards_T), reversed(values_T), strict=True):
        later = reward + discount * next_value - value + discount * decay * later
        next_value = value
        found.append(later)
    return found[::-1]


def divergence(logprobs_T: Sequence[float], reference_T: Sequence[float]) -> list[float]:
    """Per-token k1 = lp − lp of the reference, whose mean estimates KL(trainer ‖ reference)
    (Schulman, "Approximating KL divergence", 2020); values that are not finite count as 0."""
    gaps = (new - old for new, old in zip(logprobs_T, reference_T, strict=True))
    return [gap if math.isfinite(gap) else 0.0 for gap in gaps]


def kl_in_reward(
    advantages_T: Sequence[float], k1_T: Sequence[float], weight: float
) -> list[float]:
    """Advantages [T] with the KL penalty of each token in its reward, A_t − weight · Σ_{s ≥ t} k1_s
    (REINFORCE++, 2501.03262)."""
    still_to_pay = turn_returns(k1_T, 1.0)
    return [a - weight * k1 for a, k1 in zip(advantages_T, still_to_pay, strict=True)]


def kl_centred(
    advantages_BT: Sequence[Sequence[float]], k1_BT: Sequence[Sequence[float]], weight: float
) -> list[list[float]]:
    """Advantages A with a centred KL penalty by token, A + weight · (mean k1 − k1), with the mean
    over all tokens of the batch, so that their sum is unchanged (ART 0.5.18, `kl_penalty_coef`)."""
    mean = _mean(k1 for k1_T in k1_BT for k1 in k1_T)
    return [
        [a + weight * (mean - k1) for a, k1 in zip(advantages_T, k1_T, strict=True)]
        for advantages_T, k1_T in zip(advantages_BT, k1_BT, strict=True)
    ]


def whitened(advantages_BT: Sequence[Sequence[float]]) -> list[list[float]]:
    """Advantages (A − mean) / std over all tokens of the batch, with the population standard
    deviation (REINFORCE++, 2501.03262); all 0 if they are equal."""
    mean = _mean(a for advantages_T in advantages_BT for a in advantages_T)
    variance = _mean((a - mean) ** 2 for advantages_T in advantages_BT for a in advantages_T)
    scale = 1 / math.sqrt(variance) if variance > TIE**2 else 0.0
    return [[(a - mean) * scale for a in advantages_T] for advantages_T in advantages_BT]


def to_mean_size_1(
    advantages_BT: Sequence[Sequence[float]], weights_B: Sequence[float]
) -> list[list[float]]:
    """Advantages A / mean |A| over all tokens of the batch, weighted by sequence (ART 0.5.18,
    `packed_tensors_from_tokenized_results`); 0 stays 0."""
    weighted = list(zip(weights_B, advantages_BT, strict=True))
    total = math.fsum(w * len(a_T) for w, a_T in weighted)
    size = math.fsum(w * abs(a) for w, a_T in weighted for a in a_T)
    scale = total / size if size > TIE * total else 0.0
    return [[a * scale for a in advantages_T] for advantages_T in advantages_BT]


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return math.fsum(known) / len(known) if known else 0.0
