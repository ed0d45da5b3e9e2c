"""Successive halving on planted curves, and against optuna's implementation."""

import random

import optuna
import pytest

from engine.protocol.config.project import ProjectConfig
from engine.training.sweep.halving import continues, decision_steps


def config_with(**sweep: object) -> ProjectConfig:
    train = {"steps": sweep.pop("steps", 30), "validate_every": sweep.pop("every", 2)}
    return ProjectConfig.model_validate({"train": train, "sweep": sweep})


def test_decisions_are_further_apart_by_the_factor() -> None:
    assert decision_steps(config_with(reduction_factor=3)) == (2, 6, 18)
    assert decision_steps(config_with(reduction_factor=2, first_validation=2)) == (4, 8, 16)
    assert decision_steps(config_with(first_validation=15)) == ()  # the last step is no decision
    assert decision_steps(config_with(every=0)) == ()
    assert decision_steps(config_with(prune="none")) == ()


def test_the_best_share_continues_and_ties_survive() -> None:
    assert continues(0.1, [], 3)
    assert continues(0.5, [0.1], 3)
    assert not continues(0.1, [0.5], 3)
    assert continues(0.5, [0.5, 0.5], 3)
    assert continues(0.8, [0.9, 0.1, 0.2, 0.3, 0.4], 3)
    assert not continues(0.7, [0.9, 0.8, 0.2, 0.3, 0.4], 3)


def planted(trials: int, steps: int, seed: int) -> list[list[float]]:
    """Curves that rise to a random level with a random speed and some noise."""
    chance = random.Random(seed)
    curves = []
    for _ in range(trials):
        level, speed = chance.random(), chance.uniform(0.1, 0.6)
        curves.append(
            [level * (1 - (1 - speed) ** s) + chance.gauss(0, 0.02) for s in range(1, steps + 1)]
        )
    return curves


def ends(curves: list[list[float]], factor: int, decisions: tuple[int, ...]) -> list[int]:
    """Step at which each trial ends, if they run one after the other."""
    reached: dict[int, list[float]] = {step: [] for step in decisions}
    ended = []
    for curve in curves:
        end = len(curve)
        for step in decisions:
            value = curve[step - 1]
            survives = continues(value, reached[step], factor)
            reached[step].append(value)
            if not survives:
                end = step
                break
        ended.append(end)
    return ended


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_same_decisions_as_optunas_pruner(factor: int) -> None:
    """The pruner of optuna decides at the rungs min_resource · factor^k, on the value reported
    there."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    curves = planted(24, 40, seed=factor)
    decisions = tuple(s for s in (factor**k for k in range(6)) if s < 40)
    study = optuna.create_study(
        direction="maximize", pruner=optuna.pruners.SuccessiveHalvingPruner(1, factor)
    )
    theirs = []
    for curve in curves:
        trial = study.ask()
        end = 40
        for step, value in enumerate(curve[:39], 1):
            trial.report(value, step)
            if trial.should_prune():
                end = step
                break
        state = optuna.trial.TrialState.PRUNED if end < 40 else optuna.trial.TrialState.COMPLETE
        study.tell(trial, curve[-1] if end == 40 else None, state=state)
        theirs.append(end)
    assert ends(curves, factor, decisions) == theirs


def test_most_steps_are_saved_and_the_best_curve_is_kept() -> None:
    """200 sweeps of 12 trials with planted levels: the best level survives nearly always, or one
    within 0.05 of it does."""
    kept = saved = 0
    for seed in range(200):
        curves = planted(12, 18, seed)
        ended = ends(curves, 3, (2, 6))
        saved += sum(18 - end for end in ended)
        best = max(max(curve) for curve in curves)
        found = max(max(c) for c, end in zip(curves, ended, strict=True) if end == 18)
        kept += found >= best - 0.05
    share = saved / (200 * 12 * 18)
    print(f"steps saved {share:.0%}, best kept in {kept} of 200")
    assert share >= 0.3
    assert kept >= 140
