"""Search over settings: grid, random, and TPE by optuna. The only module that imports optuna.

Pure: proposals and importance are functions of the space, a seed and the results so far. No study
is stored; each call builds one in memory, so a resumed sweep proposes the same as one that was
never interrupted.
"""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from engine.protocol.config.sweep import MOST_COMBINATIONS, Range
from engine.protocol.records.sweeps import Space, Values
from engine.runtime.seeds import derive

if TYPE_CHECKING:
    import optuna

STARTUP_TRIALS = 5
"""Trials before which TPE proposes at random: its model needs some results."""
ATTEMPTS = 32
"""Proposals per trial until one differs from all earlier trials."""
LEAST_RESULTS = 4
"""Finished trials from which the importance of settings is computed."""


@dataclass(frozen=True)
class Outcome:
    """Values of an earlier trial and what is known of its result; higher is better."""

    values: Values
    state: Literal["finished", "pruned", "open"]
    """`open`: not finished, or failed: the search learns nothing from it."""
    result: float | None = None
    curve: dict[int, float] = field(default_factory=dict)
    """Step → best result so far, of a pruned trial."""


def combinations(space: Space) -> int | None:
    """Number of different trials of a space; None if it is not finite."""
    sizes = [_choices(values) for values in space.values()]
    return None if None in sizes else math.prod(len(one) for one in sizes if one)


def listed(
    space: Space, method: str, trials: int, seed: int, shuffled: bool = False
) -> list[Values]:
    """Values of all trials of a grid or of a random search in a finite space, in order; empty if
    they are proposed one by one. Fewer `trials` than combinations are a random sample; `shuffled`
    puts a grid into random order, which successive halving needs: a grid that gets better from
    trial to trial would never be pruned."""
    total = combinations(space)
    if method == "tpe" or total is None or total > MOST_COMBINATIONS:
        return []
    choices = [_choices(values) or [] for values in space.values()]
    everything = [
        dict(zip(space, combined, strict=True)) for combined in itertools.product(*choices)
    ]
    chance = random.Random(derive(seed, "sweep", method))
    chosen = chance.sample(range(total), min(trials, total))
    ordered = method == "grid" and not shuffled
    return [everything[number] for number in (sorted(chosen) if ordered else chosen)]


def propose(
    space: Space, method: Literal["random", "tpe"], seed: int, earlier: Sequence[Outcome]
) -> Values | None:
    """Values of the next trial, different from all earlier ones; None if the space is exhausted."""
    tried = [outcome.values for outcome in earlier]
    total = combinations(space)
    if total is not None and len(tried) >= total:
        return None
    for attempt in range(ATTEMPTS):
        chosen = "random" if len(_known(earlier)) < STARTUP_TRIALS else method
        number = derive(seed, "sweep", method, len(tried), attempt)
        values = _ask(space, chosen, number % 2**32, earlier)
        if values not in tried:
            return values
    if total is None or total > MOST_COMBINATIONS:
        return values
    everything = listed(space, "random", total, derive(seed, "rest", len(tried)))
    return next((values for values in everything if values not in tried), None)


def importance(space: Space, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Share of the variation of the results that each setting explains (PED-ANOVA, 2304.10255);
    empty for a single setting, equal results, or fewer than `LEAST_RESULTS` finished trials."""
    finished = [one for one in outcomes if one.state == "finished" and one.result is not None]
    if len(space) < 2 or len(finished) < LEAST_RESULTS or len({o.result for o in finished}) < 2:
        return {}
    optuna = _optuna()
    study = _study(space, finished, optuna.samplers.RandomSampler(seed=0))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    shares = {key: float(found.get(key, 0.0)) for key in space}
    return shares if all(map(math.isfinite, shares.values())) and any(shares.values()) else {}


def _known(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [one for one in outcomes if one.state != "open" and (one.result is not None)]


def _ask(space: Space, method: str, seed: int, earlier: Sequence[Outcome]) -> Values:
    optuna = _optuna()
    if method == "tpe":
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=0)
    else:
        sampler = optuna.samplers.RandomSampler(seed=seed)
    trial = _study(space, _known(earlier), sampler).ask(_distributions(space))
    return {key: _exact(space[key], trial.params[key]) for key in space}


def _study(
    space: Space, outcomes: Sequence[Outcome], sampler: "optuna.samplers.BaseSampler"
) -> "optuna.Study":
    optuna = _optuna()
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = _distributions(space)
    for one in outcomes:
        pruned = one.state == "pruned"
        state = optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE
        study.add_trial(
            optuna.trial.create_trial(
                state=state,
                params=one.values,
                distributions=distributions,
                value=one.result,
                intermediate_values=one.curve,
            )
        )
    return study


def _distributions(space: Space) -> "dict[str, optuna.distributions.BaseDistribution]":
    kinds = _optuna().distributions
    found = {}
    for key, values in space.items():
        if not isinstance(values, Range):
            found[key] = kinds.CategoricalDistribution(values)
        elif isinstance(values.low, int):
            step = int(values.step or 1)
            found[key] = kinds.IntDistribution(values.low, int(values.high), values.log, step)
        else:
            found[key] = kinds.FloatDistribution(values.low, values.high, values.log, values.step)
    return found


def _exact(values: tuple | Range, value: object) -> "bool | int | float | str":  # type: ignore[type-arg]
    """The proposed value without the rounding error of a step."""
    choices = values.values() if isinstance(values, Range) else None
    if choices is None or not isinstance(value, (int, float)):
        return value  # type: ignore[return-value]
    return min(choices, key=lambda choice: abs(choice - value))


def _choices(values: object) -> "list[bool | int | float | str] | None":
    """All values of a setting; None for a range of numbers without steps."""
    if not isinstance(values, Range):
        return list(values)  # type: ignore[call-overload]
    if isinstance(values.low, int) and values.step is None:
        return list(range(values.low, int(values.high) + 1))
    return values.values()  # type: ignore[return-value]


def _optuna():  # type: ignore[no-untyped-def]
    """optuna, imported when it is first needed: it takes a quarter of a second."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
