"""The update rule, as `[train.algorithm]` says it: variants, their sources, what goes together.

A preset gives the defaults of all other keys; a key that is written wins.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from engine.protocol.config.presets import PRESETS, PresetName
from engine.protocol.config.section import Section


class GroupMean(Section):
    """Reward minus the mean of its group: no length or difficulty bias (Dr. GRPO, 2503.20783)."""

    kind: Literal["group_mean"] = "group_mean"


class GroupStd(Section):
    """Reward minus the group's mean, divided by its standard deviation (GRPO, 2402.03300)."""

    kind: Literal["group_std"] = "group_std"
    floor: Annotated[float, Field(ge=0)] = 0.1
    """Smallest divisor, so that judge noise in a tied group is not blown up."""
    epsilon: Annotated[float, Field(ge=0)] = 0.0
    """Added to the divisor: what other libraries have instead of a floor."""


class LeaveOneOut(Section):
    """Reward minus the mean of its siblings (RLOO, 2402.14740)."""

    kind: Literal["leave_one_out"] = "leave_one_out"


class PlainReward(Section):
    """The reward itself: the baseline comes later, from the batch or from a value head."""

    kind: Literal["reward"] = "reward"


Advantage = Annotated[GroupMean | GroupStd | LeaveOneOut | PlainReward, Field(discriminator="kind")]


class TrajectoryCredit(Section):
    """Every token gets the advantage of its trajectory."""

    kind: Literal["trajectory"] = "trajectory"


class AnchorCredit(Section):
    """… plus that of its turn, against turns of the group that answered the same observation
    (GiGPO, 2505.10978): A + weight · A_turn, from discounted returns."""

    kind: Literal["anchors"] = "anchors"
    weight: Annotated[float, Field(ge=0)] = 1.0
    """What a turn's advantage counts beside that of the whole trajectory."""
    discount: Annotated[float, Field(gt=0, le=1)] = 0.95
    """What a reward one turn later is worth."""


class ValueCredit(Section):
    """Generalised advantage estimates over a learned value head (PPO, 1707.06347; GAE, 1506.02438).
    Groups in which all score alike teach too: the head knows what was expected of them."""

    kind: Literal["value"] = "value"
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    """γ: what a reward one token later is worth."""
    decay: Annotated[float, Field(ge=0, le=1)] = 0.95
    """λ: 1 trusts the rewards that came, 0 trusts the value of the next token."""
    weight: Annotated[float, Field(ge=0, le=10)] = 0.1
    """Weight of the value loss beside the policy's; both pass through the adapter."""
    clip: Annotated[float, Field(gt=0)] = 0.5
    """How far a value may move in one batch before it stops counting as better."""
    lr: Annotated[float, Field(gt=0, le=1)] = 1e-4
    """Learning rate of the value head alone."""


Credit = Annotated[TrajectoryCredit | AnchorCredit | ValueCredit, Field(discriminator="kind")]


class Clipped(Section):
    """min(r·A, clip(r)·A), the ratio r token by token (PPO, 1707.06347; GRPO, 2402.03300)."""

    kind: Literal["clipped"] = "clipped"
    low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """The ratio is clipped below 1 − low."""
    high: Annotated[float, Field(ge=0)] = 0.28
    """The ratio is clipped above 1 + high (clip-higher of DAPO, 2503.14476)."""


class Cispo(Section):
    """Clip the ratio's value, keep every token's gradient: for stale data (CISPO, 2506.13585)."""

    kind: Literal["cispo"] = "cispo"
    low: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The ratio's value is at least 1 − low."""
    high: Annotated[float, Field(ge=0)] = 4.0
    """The ratio's value is at most 1 + high."""


class Gspo(Section):
    """Clip one ratio a sequence, the geometric mean of its tokens' (GSPO, 2507.18071)."""

    kind: Literal["gspo"] = "gspo"
    low: Annotated[float, Field(ge=0, le=1)] = 3e-4
    """The sequence's ratio is clipped below 1 − low."""
    high: Annotated[float, Field(ge=0)] = 4e-4
    """The sequence's ratio is clipped above 1 + high."""


Loss = Annotated[Clipped | Cispo | Gspo, Field(discriminator="kind")]


class TokenCap(Section):
    """Weight each token by min(w, cap): truncated importance sampling."""

    kind: Literal["token_cap"] = "token_cap"
    cap: Annotated[float, Field(ge=1)] = 2.0
    """Largest weight of a token."""


class TokenMask(Section):
    """Leave out tokens whose weight is out of bounds, weigh the others (IcePop)."""

    kind: Literal["token_mask"] = "token_mask"
    low: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Smallest weight that stays."""
    high: Annotated[float, Field(ge=1)] = 2.0
    """Largest weight that stays."""


class SequenceMask(Section):
    """Leave out sequences whose geometric mean weight is out of bounds."""

    kind: Literal["sequence_mask"] = "sequence_mask"
    low: Annotated[float, Field(ge=0, le=1)] = 0.99
    """Smallest mean weight that stays."""
    high: Annotated[float, Field(ge=1)] = 1.01
    """Largest mean weight that stays."""


class NoCorrection(Section):
    """Trust the sampler's log-probs to be the trainer's."""

    kind: Literal["none"] = "none"


Correction = Annotated[
    TokenCap | TokenMask | SequenceMask | NoCorrection, Field(discriminator="kind")
]


class Algorithm(Section):
    """One batch of attempts → one update of the policy, or several."""

    preset: PresetName = "atelier"
    """A named method: it sets every key below that you do not set yourself."""
    advantage: Advantage = GroupMean()
    """How rewards inside a group become advantages."""
    credit: Credit = TrajectoryCredit()
    """How a trajectory's advantage becomes those of its tokens."""
    batch_scale: Literal["none", "whiten", "mean_abs"] = "none"
    """What the whole batch does to its advantages: nothing, mean 0 and deviation 1 over all tokens
    (REINFORCE++), or a mean size of 1 (ART)."""
    loss: Loss = Clipped()
    """What is made of ratio and advantage."""
    ratio_to: Literal["trainer", "sampler"] = "trainer"
    """Against whom the ratio is taken: the trainer before the batch (`correction` makes up for the
    sampler), or the sampler itself (for stale attempts; then nothing corrects)."""
    correction: Correction = TokenCap()
    """How that difference is weighed: w = exp(lp of the trainer − lp of the sampler)."""
    average: Literal["tokens", "sequences", "trajectories", "constant"] = "tokens"
    """Mean over all trained tokens (DAPO), over sequences of their means (GRPO), the same over
    whole trajectories (ART), or a sum over sequences × max_tokens (Dr. GRPO)."""
    kl: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Weight of the distance to the untrained model; 0 skips its forward pass."""
    kl_in: Literal["loss", "advantage", "reward"] = "loss"
    """Where that distance counts: k3 in the loss (GRPO); in the advantage, kl · (mean k1 − k1)
    (ART); or in the reward, kl · k1 taken from each token and all after it (REINFORCE++)."""
    entropy: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """Weight of the mean token entropy, subtracted from the loss; 0 leaves it alone."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients are scaled down to this norm."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """AdamW's decoupled weight decay of the adapter: it shrinks by lr · weight_decay an update."""
    updates: Annotated[int, Field(ge=1, le=64)] = 1
    """Optimizer steps per batch, each on its share of the groups. From the second on the ratio has
    moved and is clipped; with `ratio_to` trainer that costs a forward pass."""
    refills: Annotated[int, Field(ge=0, le=16)] = 0
    """Dynamic sampling (DAPO, 2503.14476): how often a step rolls out further scenarios in place of
    groups that all score alike; those are left out of the batch."""
    overlong: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of max_tokens over which the reward part `overlong` falls from 0 to −1 before the limit
    (soft overlong punishment, DAPO); 0 is off."""
    mask_truncated: bool = False
    """Learn nothing from attempts cut by a limit; they still count in their group's mean."""

    @property
    def shaped(self) -> bool:
        """Whether the distance to the untrained model is part of the advantages."""
        return self.kl > 0 and self.kl_in != "loss"

    @property
    def moving(self) -> bool:
        """Whether updates compare with the trainer before the first of them."""
        return self.updates > 1 and self.ratio_to == "trainer"

    @property
    def extra_passes(self) -> list[str]:
        """Forward passes over the trained tokens beside the update's own, in words."""
        before = self.shaped or self.moving or self.credit.kind == "value"
        return ["before the update"] * before + ["untrained model"] * (self.kl > 0)

    @model_validator(mode="before")
    @classmethod
    def _start_from_the_preset(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        name = values.get("preset", "atelier")
        preset = PRESETS.get(name) if isinstance(name, str) else None
        return _over(preset.values, values) if preset else values

    @model_validator(mode="after")
    def _fits_together(self) -> "Algorithm":
        if words := _contradiction(self):
            raise ValueError(words)
        return self


def _over(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` on top; inside a variant only where both are of the same kind."""
    merged = {**defaults, **values}
    for key, default in defaults.items():
        own = values.get(key)
        if isinstance(default, Mapping) and isinstance(own, Mapping):
            same = own.get("kind", default["kind"]) == default["kind"]
            merged[key] = {**default, **own} if same else own
    return merged


def _contradiction(a: Algorithm) -> str:
    """What makes no sense together, in words that follow the key; empty where all does."""
    plain, value = a.advantage.kind == "reward", a.credit.kind == "value"
    if a.kl_in != "loss" and not a.kl:
        return f'has kl_in "{a.kl_in}" with kl 0: give kl a weight, or leave kl_in out'
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
        return 'has credit "anchors", which compares inside a group: advantage cannot be "reward"'
    if plain and not value and a.batch_scale != "whiten":
        return (
            'has advantage "reward" without a baseline: set batch_scale to "whiten", or credit to '
            '"value"'
        )
    if plain and a.refills:
        return (
            'has refills with advantage "reward", where groups that score alike teach too: set '
            "refills to 0"
        )
    return ""


UNIONS = frozenset({"advantage", "credit", "loss", "correction"})
"""Keys with variants: below them, pydantic puts the variant's name into the path of an error."""
