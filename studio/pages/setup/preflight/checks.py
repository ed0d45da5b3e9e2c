"""Project checks of the preflight, as (state, words)."""

from engine.protocol.problems import Problem
from engine.protocol.records.forecast import Forecast
from studio.text import formatting


def project_checks(
    problems: list[Problem], readable: bool, lacking: str, outside: bool = False
) -> list[tuple[str, str]]:
    """Return (state, text) lines: up to five problems, or that the project is valid. `readable`: it
    could be loaded; `lacking`: missing packages; `outside`: an external script makes the rollouts.
    """
    if outside and not problems:
        return [("good", "project.toml is valid"), ("open", "A script runs the rollouts")]
    if problems:
        return [("bad", f"{p.where}: {p.message}" if p.where else p.message) for p in problems[:5]]
    lines = [("good", "project.toml and scenarios are valid")] if readable else []
    return [*lines, ("bad", lacking)] if lacking else lines


def disk_checks(forecast: Forecast | None) -> list[tuple[str, str]]:
    """Return one (state, text) line on the disk space of checkpoints; empty without a forecast."""
    if forecast is None or not forecast.kept:
        return []
    need, free = forecast.disk_bytes, forecast.disk_free_bytes
    kept = formatting.plural(forecast.kept, "checkpoint")
    if need is None:  # an adapter of a model whose weights are elsewhere
        return [("open", f"{kept} of unknown size; {formatting.size(free)} free disk")]
    verb = "takes" if forecast.kept == 1 else "take"
    words = f"{kept} {verb} {formatting.size(need)} of {formatting.size(free)} free disk"
    return [("good" if need < free else "bad", words)]
