"""Forecast of a run's judge calls and their cost, before the run starts. Pure."""

from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.forecast import JudgeForecast


def judge_forecast(
    config: ProjectConfig, held_out: int, usd_per_call: float | None
) -> JudgeForecast | None:
    """Forecast the calls of all judge models of a training run; None without a judge model.
    `held_out`: number of validation scenarios; `usd_per_call`: mean cost of a call in an earlier
    run, None if unknown.

    A group takes one call per pass and model: all passes, or two if these agree. Each validation
    is judged as one group per scenario, except the first of a judge whose scores are only relative.
    Retries after errors are not included."""
    judge, train = config.judge, config.train
    if not (judge.enabled and judge.models):
        return None
    least, most = min(2, judge.passes), judge.passes
    if judge.prompt == "art":
        least = most = 1
    groups = train.steps * train.groups
    canaries = train.steps // judge.canary_every if judge.canary_every else 0
    tests = 2 + (train.steps - 1) // train.validate_every if train.validate_every else 2
    models = len(judge.models)
    routine = 0 if judge.local else groups * least
    low = models * (routine + (tests - 1) * held_out * least + (0 if judge.local else canaries))
    high = models * (groups * most + tests * held_out * most + canaries)
    return JudgeForecast(
        calls_low=low,
        calls_high=high,
        validation_calls=models * (tests - 1) * held_out * least,
        usd_low=None if usd_per_call is None else low * usd_per_call,
        usd_high=None if usd_per_call is None else high * usd_per_call,
        budget_usd=judge.budget_usd,
    )
