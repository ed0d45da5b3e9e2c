"""Settings of the update rule (`[train.algorithm]`): variants, their sources and valid
combinations.

A preset gives the defaults of all other keys; a key that is set explicitly takes precedence.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from engine.protocol.base import Section
from engine.protocol.config.presets import PRESETS, PresetName


class GroupMean(Section):
    """Reward minus the mean of its group: no length or difficulty bias (Dr. GRPO, 2503.20783)."""

    kind: Literal["group_mean"] = "group_mean"


class GroupStd(Section):
    """Reward minus the group's mean, divided by its standard deviation (GRPO, 2402.03300)."""

    kind: Literal["group_std"] = "group_std"
    floor: Annotated[float, Field(ge=0)] = 0.1
    """Lower bound of the divisor, so that judge noise in a group of equal rewards is not
    amplified."""
    epsilon: Annotated[float, Field(ge=0)] = 0.0
    """Constant added to the divisor; other libraries use this instead of a lower bound."""


class LeaveOneOut(Section):
    """Reward minus the mean of the other trajectories of its group (RLOO, 2402.14740)."""

    kind: Literal["leave_one_out"] = "leave_one_out"


class PlainReward(Section):
    """Raw reward; the baseline is subtracted later, by the batch statistics or a value head."""

    kind: Literal["reward"] = "reward"


Advantage = Annotated[GroupMean | GroupStd | LeaveOneOut | PlainReward, Field(discriminator="kind")]


class TrajectoryCredit(Section):
    """Every token gets the advantage of its trajectory."""

    kind: Literal["trajectory"] = "trajectory"


class AnchorCredit(Section):
    """Advantage of the trajectory plus that of the turn, computed against turns of the group that
    share the same observation (GiGPO, 2505.10978): A + weight · A_turn, from discounted returns."""

    kind: Literal["anchors"] = "anchors"
    weight: Annotated[float, Field(ge=0)] = 1.0
    """Weight of the turn-level advantage relative to the trajectory-level advantage."""
    discount: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Discount factor γ per turn."""


class ValueCredit(Section):
    """Generalized advantage estimation with a learned value head (PPO, 1707.06347; GAE,
    1506.02438). Groups in which all rewards are equal contribute a gradient too, since the baseline
    is the predicted value."""

    kind: Literal["value"] = "value"
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount factor γ per token."""
    decay: Annotated[float, Field(ge=0, le=1)] = 0.95
    """λ of GAE: 1 uses the observed returns only, 0 only the predicted value of the next token."""
    weight: Annotated[float, Field(ge=0, le=10)] = 0.1
    """Weight of the value loss relative to the policy loss; both train the adapter."""
    clip: Annotated[float, Field(gt=0)] = 0.5
    """Clip range of the value loss: a predicted value gains nothing from changing by more than this
    per batch."""
    lr: Annotated[float, Field(gt=0, le=1)] = 1e-4
    """Learning rate of the value head."""


Credit = Annotated[TrajectoryCredit | AnchorCredit | ValueCredit, Field(discriminator="kind")]


class Clipped(Section):
    """PPO clipping of the token-level ratio r: min(r·A, clip(r)·A) (PPO, 1707.06347; GRPO,
    2402.03300)."""

    kind: Literal["clipped"] = "clipped"
    low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """The ratio is clipped below 1 − low."""
    high: Annotated[float, Field(ge=0)] = 0.28
    """The ratio is clipped above 1 + high (clip-higher of DAPO, 2503.14476)."""


class Cispo(Section):
    """Clipped ratio as a constant weight, so that every token keeps its gradient; for stale data
    (CISPO, 2506.13585)."""

    kind: Literal["cispo"] = "cispo"
    low: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The ratio is clipped below 1 − low."""
    high: Annotated[float, Field(ge=0)] = 4.0
    """The ratio is clipped above 1 + high."""


class Gspo(Section):
    """Clipping of one ratio per sequence, the geometric mean of its token ratios (GSPO,
    2507.18071)."""

    kind: Literal["gspo"] = "gspo"
    low: Annotated[float, Field(ge=0, le=1)] = 3e-4
    """The sequence ratio is clipped below 1 − low."""
    high: Annotated[float, Field(ge=0)] = 4e-4
    """The sequence ratio is clipped above 1 + high."""


Loss = Annotated[Clipped | Cispo | Gspo, Field(discriminator="kind")]


class TokenCap(Section):
    """Truncated importance sampling: weight each token by min(w, cap)."""

    kind: Literal["token_cap"] = "token_cap"
    cap: Annotated[float, Field(ge=1)] = 2.0
    """Upper bound of a token's importance weight."""


class TokenMask(Section):
    """Mask tokens whose importance weight is out of bounds and weight the others (IcePop)."""

    kind: Literal["token_mask"] = "token_mask"
    low: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Tokens with a smaller importance weight are masked."""
    high: Annotated[float, Field(ge=1)] = 2.0
    """Tokens with a larger importance weight are masked."""


class SequenceMask(Section):
    """Mask sequences whose geometric mean importance weight is out of bounds."""

    kind: Literal["sequence_mask"] = "sequence_mask"
    low: Annotated[float, Field(ge=0, le=1)] = 0.99
    """Sequences with a smaller mean importance weight are masked."""
    high: Annotated[float, Field(ge=1)] = 1.01
    """Sequences with a larger mean importance weight are masked."""


class NoCorrection(Section):
    """No correction: use the sampler's log-probs as if they were the trainer's."""

    kind: Literal["none"] = "none"


Correction = Annotated[
    TokenCap | TokenMask | SequenceMask | NoCorrection, Field(discriminator="kind")
]


class Algorithm(Section):
    """Update rule: turns one batch of trajectories into one or more optimizer steps."""

    preset: PresetName = "atelier"
    """Named method; sets every key below that you do not set yourself."""
    advantage: Advantage = GroupMean()
    """Estimator that turns the rewards of a group into advantages."""
    credit: Credit = TrajectoryCredit()
    """Credit assignment: how the advantage of a trajectory is distributed over its tokens."""
    batch_scale: Literal["none", "whiten", "mean_abs"] = "none"
    """Normalization of advantages over the batch: none, mean 0 and standard deviation 1 over all
    tokens (REINFORCE++), or mean absolute value 1 (ART)."""
    loss: Loss = Clipped()
    """Policy loss computed from ratio and advantage."""
    ratio_to: Literal["trainer", "sampler"] = "trainer"
    """Reference of the importance ratio: the trainer's policy before the batch (`correction`
    accounts for the sampler), or the sampler's policy (for stale trajectories; no correction)."""
    correction: Correction = TokenCap()
    """Correction of the mismatch between sampler and trainer, with weights w = exp(lp of the
    trainer − lp of the sampler)."""
    average: Literal["tokens", "sequences", "trajectories", "constant"] = "tokens"
    """Aggregation of the token losses: mean over all trained tokens (DAPO), mean over the means of
    the sequences (GRPO), mean over the means of the trajectories (ART), or sum divided by sequences
    × max_tokens (Dr. GRPO)."""
    kl: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Weight of the KL divergence to the base model; 0 skips the base model's forward pass."""
    kl_in: Literal["loss", "advantage", "reward"] = "loss"
    """Placement of the KL penalty: k3 in the loss (GRPO); in the advantage, kl · (mean k1 − k1)
    (ART); or in the reward, kl · k1 subtracted from each token and all later ones (REINFORCE++)."""
    entropy: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """Weight of the entropy bonus: mean token entropy, subtracted from the loss. 0 disables it."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradient clipping: largest norm of the gradient."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Decoupled weight decay of AdamW: each update shrinks the adapter by lr · weight_decay."""
    updates: Annotated[int, Field(ge=1, le=64)] = 1
    """Optimizer steps per batch, each on an equal share of the groups. From the second step on the
    ratio differs from 1 and is clipped; with `ratio_to` trainer this needs one more forward pass.
    """
    refills: Annotated[int, Field(ge=0, le=16)] = 0
    """Dynamic sampling (DAPO, 2503.14476): how many times a step may sample further scenarios to
    replace groups without signal (all rewards equal), which are left out of the batch."""
    overlong: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Soft overlong punishment (DAPO): in the last part of max_tokens, the reward part `overlong`
    falls from 0 to −1. This is the size of that part as a share of max_tokens; 0 disables it."""
    mask_truncated: bool = False
    """Exclude truncated trajectories from the gradient; they still count in the mean of their
    group."""

    @property
    def shaped(self) -> bool:
        """Whether the KL divergence to the base model is part of the advantages."""
        return self.kl > 0 and self.kl_in != "loss"

    @property
    def moving(self) -> bool:
        """Whether updates need the trainer's log-probs from before the batch's first update."""
        return self.updates > 1 and self.ratio_to == "trainer"

    @property
    def extra_passes(self) -> list[str]:
        """Names of the forward passes over the trained tokens in addition to the update's own."""
        before = self.shaped or self.moving or self.credit.kind == "value"
        return ["before the update"] * before + ["untrained model"] * (self.kl > 0)

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        name = values.get("preset", "atelier")
        preset = PRESETS.get(name) if isinstance(name, str) else None
        return _merged(preset.values, values) if preset else values

    @model_validator(mode="after")
    def _check_combination(self) -> "Algorithm":
        if words := _contradiction(self):
            raise ValueError(words)
        return self


def _merged(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `values` into `defaults`; variants are merged only if both are of the same kind."""
    merged = {**defaults, **values}
    for key, default in defaults.items():
        own = values.get(key)
        if isinstance(default, Mapping) and isinstance(own, Mapping):
            same = own.get("kind", default["kind"]) == default["kind"]
            merged[key] = {**default, **own} if same else own
    return merged


def _contradiction(a: Algorithm) -> str:
    """Error message of an invalid combination, phrased to follow the key; empty if the combination
    is valid."""
    plain, value = a.advantage.kind == "reward", a.credit.kind == "value"
    if a.kl_in != "loss" and not a.kl:
        return f'has kl_in "{a.kl_in}" with kl 0: set kl above 0, or omit kl_in'
    if a.ratio_to == "sampler" and a.correction.kind in ("token_mask", "sequence_mask"):
        return (
            f'has correction "{a.correction.kind}" with ratio_to "sampler", which leaves nothing '
            'to correct: set ratio_to to "trainer", or correction to "none"'
        )
    if value and not plain:
        return (
            f'has credit "value" with advantage "{a.advantage.kind}": the value head is the '
            'baseline already, so set advantage to "reward"'
        )
    if plain and a.credit.kind == "anchors":
        return (
            'has credit "anchors", which compares turns within a group: advantage cannot be '
            '"reward"'
        )
    if plain and not value and a.batch_scale != "whiten":
        return (
            'has advantage "reward" without a baseline: set batch_scale to "whiten", or credit to '
            '"value"'
        )
    if plain and a.refills:
        return (
            'has refills with advantage "reward", where groups with equal rewards count too: set '
            "refills to 0"
        )
    return ""


UNIONS = frozenset({"advantage", "credit", "loss", "correction"})
"""Keys with variants: pydantic inserts the name of the variant below them into the path of an
error."""
