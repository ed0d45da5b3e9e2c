"""Limits of a coding agent: what the person who started the server allows."""

from collections.abc import Iterable, Mapping
from typing import Any

from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Refused
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary

SETTABLE = ("train.", "reward.", "evaluate.attempts", "model.rank", "model.alpha")
"""Keys, or their beginnings, that a coding agent may set: none of them names a program, a file, a
package or an address."""


class Limits:
    """Runs, steps and US dollars that a coding agent may use, and what its runs have used."""

    def __init__(self, runs: int = 0, steps: int = 0, usd: float = 0.0, edit: bool = False) -> None:
        """`runs` and `steps` are totals over all runs that the server starts, `usd` is the total
        cost of their judges and models. `edit` allows changes of settings and rubrics."""
        self.runs, self.steps, self.usd, self.edit = runs, steps, usd, edit
        self.started: dict[str, int] = {}
        """Planned steps of each run that the server has started, by its id."""

    def words(self) -> str:
        """The limits in one sentence."""
        if not self.runs:
            return "Starting runs is not allowed."
        edit = "may" if self.edit else "may not"
        return (
            f"Up to {self.runs} runs with {self.steps} steps and {self.usd:g} USD in total may be "
            f"started; settings and rubrics {edit} be changed."
        )

    def require_edit(self) -> None:
        """Raise Refused if settings may not be changed."""
        if not self.edit:
            raise Refused.of(
                "mcp.read_only",
                "Changes are not allowed: this is a proposal only.",
                "Ask the person to make the change, or to start the server with --edit.",
            )

    def require_run(self, run_id: str) -> None:
        """Raise Refused unless the server has started the run."""
        if run_id not in self.started:
            raise Refused.of(
                "mcp.not_own_run",
                "Only runs that this server has started can be stopped.",
                "Ask the person to stop the run.",
            )

    def overrides(
        self,
        config: ProjectConfig,
        steps: int,
        values: Mapping[str, Any],
        summaries: Iterable[RunSummary],
    ) -> dict[str, Any]:
        """Settings of a new run with `steps` steps (0: a measurement of the baseline) and `values`,
        within what is left; `summaries` are those of all runs. Raises Refused."""
        check_keys(values)
        if len(self.started) >= self.runs:
            raise Refused.of(
                "mcp.no_runs_left",
                f"{self.words()} {len(self.started)} have been started.",
                "Ask the person to start the server with a higher --runs.",
            )
        left = self.steps - sum(self.started.values())
        if steps > left:
            raise Refused.of(
                "mcp.no_steps_left",
                f"{steps} steps are asked for; {left} of {self.steps} are left.",
                "Start a shorter run, or ask the person for a higher --steps.",
            )
        found: dict[str, Any] = dict(values)
        if steps:
            found["train.steps"] = steps
        if config.judge.enabled and config.judge.models:
            left_usd, own = self._usd_left(summaries), config.judge.budget_usd
            found["judge.budget_usd"] = left_usd if own is None else min(own, left_usd)
        return found

    def _usd_left(self, summaries: Iterable[RunSummary]) -> float:
        """Dollars that no run of the server has used; runs that are active may use theirs up.
        Raises Refused if nothing is left."""
        used = 0.0
        for one in summaries:
            if one.id in self.started:
                budget = one.settings.get("judge.budget_usd", self.usd)
                used += float(budget) if one.state in ACTIVE_STATES | {"queued"} else one.usd
        if self.usd - used <= 0:
            raise Refused.of(
                "mcp.no_money_left",
                f"The judge of this project costs money; {used:g} of {self.usd:g} USD are used.",
                "Ask the person to start the server with a higher --usd.",
            )
        return self.usd - used


def check_keys(values: Mapping[str, Any]) -> None:
    """Raise Refused for a setting that a coding agent may not choose."""
    for key in values:
        if not key.startswith(SETTABLE) or key == "train.steps":
            raise Refused.of(
                "mcp.key",
                f"{key} cannot be set by a coding agent.",
                f"Allowed: {', '.join(SETTABLE)}; the number of steps is an argument of its own. "
                "Propose other changes to the person.",
            )
