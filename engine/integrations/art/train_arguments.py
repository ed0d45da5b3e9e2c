"""Arguments of ART's `train()` → settings of the algorithm. Pure.

An argument that would change the update in a way that is not supported is refused; one that only
affects execution gives a note. ART's names and defaults: openpipe-art 0.5.18, LocalBackend.train
and loss.py.

`train()` is called after rollouts and judges were paid for. Arguments with literal values are
therefore parsed from the script as soon as its model is registered (`train_arguments`); values that
are only known at run time are checked at the beginning of `train()`.
"""

import ast
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from engine.protocol.config.algorithm import Algorithm
from engine.protocol.problems import ConfigError

CISPO_CLIP = (1.0, 4.0)
PPO_CLIP = (0.2, None)
"""Default (epsilon, epsilon_high); None means the same as epsilon."""


@dataclass(frozen=True, kw_only=True)
class TrainArguments:
    """The arguments of ART's LocalBackend.train, with its defaults."""

    learning_rate: float = 5e-6
    loss_fn: Literal["cispo", "ppo"] = "cispo"
    loss_fn_config: dict[str, Any] | None = None
    normalize_advantages: bool = True
    adam_params: object | None = None
    kl_penalty_coef: float = 0.0
    kl_penalty_reference_step: int | None = None
    kl_ref_adapter_path: str | None = None
    epsilon: float | None = None
    epsilon_high: float | None = None
    advantage_balance: float = 0.0
    scale_rewards: bool = True
    importance_sampling_level: str = "token"
    max_negative_advantage_importance_sampling_weight: float | None = None
    mask_prob_ratio: bool = False
    kimi_k2_tau: float | None = None
    precalculate_logprobs: bool = False
    allow_training_without_logprobs: bool = False
    plot_tensors: bool = False
    truncated_importance_sampling: float | None = None
    scale_learning_rate_by_reward_std_dev: bool = False
    logprob_calculation_chunk_size: int = 1024
    packed_sequence_length: int | None = None
    num_trajectories_learning_rate_multiplier_power: float = 0.0
    save_checkpoint: bool = True
    verbose: bool = False


INSTEAD = {
    "loss_fn_config": "Leave it out; ART's LocalBackend does not support loss_fn_config either.",
    "adam_params": "Leave it out; Atelier and ART use AdamW with betas (0.9, 0.99).",
    "kl_penalty_reference_step": "Leave it out: the KL penalty is relative to the base model.",
    "kl_ref_adapter_path": "Leave it out: the KL penalty is relative to the base model.",
    "advantage_balance": "Leave it at 0; to change advantages, use `train.algorithm`.",
    "importance_sampling_level": 'Use "token"; "sequence" needs loss_fn="ppo" (GSPO).',
    "max_negative_advantage_importance_sampling_weight": (
        "Use epsilon_high to bound the importance ratio."
    ),
    "mask_prob_ratio": 'Leave it at False; loss_fn="ppo" clips tokens outside epsilon.',
    "kimi_k2_tau": "Leave it out; kl_penalty_coef keeps the policy near the base model.",
    "allow_training_without_logprobs": "Leave it out: all completions of Atelier have log-probs.",
    "scale_learning_rate_by_reward_std_dev": "Scale learning_rate in the script.",
    "num_trajectories_learning_rate_multiplier_power": "Scale learning_rate in the script.",
}
"""Alternatives to unsupported arguments that would change the update."""

NO_MATTER = {
    "plot_tensors": "the Trajectories page shows the advantage of each token instead.",
    "logprob_calculation_chunk_size": "the setting train.batch_tokens limits memory instead.",
    "packed_sequence_length": "sequences are not padded, and train.batch_tokens limits memory.",
}
"""Arguments that only affect execution, with the reason to omit them."""


def algorithm_of(knobs: TrainArguments) -> tuple[Algorithm, list[str]]:
    """Return the algorithm that ART's arguments of `train` ask for, and a message for each ignored
    argument. Raises ConfigError for an unsupported one."""
    for name, hint in INSTEAD.items():
        if getattr(knobs, name) != _default(name) and not _is_gspo(knobs, name):
            raise ConfigError.of(
                "art.knob",
                f"train({name}={getattr(knobs, name)!r}) is not supported by Atelier.",
                hint,
                where=f"train({name}=…)",
            )
    notes = [
        f"train({name}=…) has no effect in Atelier: {words}"
        for name, words in NO_MATTER.items()
        if getattr(knobs, name) != _default(name)
    ]
    values: dict[str, Any] = {"preset": "art", "loss": _loss(knobs)}
    if not (knobs.scale_rewards and knobs.normalize_advantages):
        values["advantage"] = {"kind": "group_mean"}
    if knobs.kl_penalty_coef:
        values |= {"kl": knobs.kl_penalty_coef, "kl_in": "advantage"}
    if knobs.precalculate_logprobs:
        cap = knobs.truncated_importance_sampling
        values["ratio_to"] = "trainer"
        values["correction"] = {"kind": "token_cap", "cap": cap} if cap else {"kind": "none"}
    elif knobs.truncated_importance_sampling is not None:
        notes.append(
            "train(truncated_importance_sampling=…) has no effect without "
            "precalculate_logprobs=True, as in ART."
        )
    return Algorithm.model_validate(values), notes


def _loss(knobs: TrainArguments) -> dict[str, Any]:
    """Return settings of the loss. ART clips to [1 − epsilon, 1 + epsilon_high], at least 0."""
    if knobs.loss_fn not in ("cispo", "ppo"):
        raise ConfigError.of(
            "art.knob",
            f"ART has no loss function {knobs.loss_fn!r}.",
            'Use "cispo" or "ppo".',
            where="train(loss_fn=…)",
        )
    low, high = CISPO_CLIP if knobs.loss_fn == "cispo" else PPO_CLIP
    low = low if knobs.epsilon is None else knobs.epsilon
    high = knobs.epsilon_high if knobs.epsilon_high is not None else high
    kind = "cispo" if knobs.loss_fn == "cispo" else "clipped"
    if knobs.importance_sampling_level == "sequence":
        kind = "gspo"
    return {"kind": kind, "low": min(low, 1.0), "high": low if high is None else high}


def _is_gspo(knobs: TrainArguments, name: str) -> bool:
    """Whether `name` asks for sequence-level ratios in ART's PPO (GSPO)."""
    wanted = (knobs.importance_sampling_level, knobs.loss_fn) == ("sequence", "ppo")
    return name == "importance_sampling_level" and wanted


def _default(name: str) -> Any:
    return next(field.default for field in fields(TrainArguments) if field.name == name)


BACKEND = "AtelierBackend"


def train_arguments(file: str | None) -> list[dict[str, Any]]:
    """Return the literal keyword arguments of each call of an AtelierBackend's `train` in a script.
    Empty if there is no such file (as in a notebook), or if it cannot be parsed."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8")) if file else ast.Module([], [])
    except (OSError, ValueError, SyntaxError, RecursionError):
        return []
    names = _backends(tree)
    return [_literals(node) for node in ast.walk(tree) if _trains(node, names)]


def _backends(tree: ast.Module) -> set[str]:
    """Return the names of variables that hold an AtelierBackend."""
    found: set[str] = set()
    for node in ast.walk(tree):
        targets: list[ast.expr | None] = []
        if isinstance(node, ast.Assign) and _makes(node.value):
            targets = list(node.targets)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and _makes(node.value):
            targets = [node.target]
        elif isinstance(node, ast.withitem) and _makes(node.context_expr):
            targets = [node.optional_vars]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def _makes(value: ast.expr | None) -> bool:
    called = value.func if isinstance(value, ast.Call) else None
    return getattr(called, "id", getattr(called, "attr", "")) == BACKEND


def _trains(node: ast.AST, names: set[str]) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    if not isinstance(called, ast.Attribute) or called.attr != "train":
        return False
    return isinstance(called.value, ast.Name) and called.value.id in names


def _literals(call: ast.AST) -> dict[str, Any]:
    found = {}
    for keyword in call.keywords if isinstance(call, ast.Call) else ():
        try:
            value = ast.literal_eval(keyword.value)
        except ValueError:  # known at run time
            continue
        if keyword.arg:
            found[keyword.arg] = value
    return found
