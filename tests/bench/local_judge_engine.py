"""An engine for tests.bench.local_judge: plain, or one whose advantages come from the local judge.

WORKSPACE [RUN]: the judge is fitted on the first differing groups of that run, labelled by their
rewards, when the first group wants to be judged. Stored rewards stay the rule's.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from engine.cli.commands.serve import _say_ready
from engine.judge.local_judge import LocalJudge
from engine.protocol.records.runs import Trajectory
from engine.reward.advantage.group import advantages
from engine.rollout import groups
from engine.rollout.rollout import Stage
from engine.server.serve import serve
from tests.bench.local_judge import FITTED, differing, groups_of, preferences_by_rule, scores_of


class Drive:
    """Takes the place of the groups' own advantages."""

    def __init__(self, labels: Path) -> None:
        self._exact = groups._group
        self._labelled = [
            [one.model_copy(update={"id": f"labelled {one.id}"}) for one in group]
            for group in differing(groups_of(labels))[:FITTED]
        ]
        self._judge: LocalJudge | None = None
        self._once = asyncio.Lock()

    async def group(self, run: Any, stage: Stage, split: str, *rest: Any) -> list[Trajectory]:
        siblings = await self._exact(run, stage, split, *rest)  # type: ignore[arg-type]
        if split != "train":
            return siblings
        scores = await scores_of(await self._fitted(stage), siblings)
        kind = run.config.train.algorithm.advantage
        given = advantages(kind, [scores.get(one.id) for one in siblings])
        return [
            one.model_copy(update={"advantage": advantage})
            for one, advantage in zip(siblings, given, strict=True)
        ]

    async def _fitted(self, stage: Stage) -> LocalJudge:
        async with self._once:
            if self._judge is None:
                judge = LocalJudge(stage.policy)
                await judge.fit(preferences_by_rule(self._labelled))
                self._judge = judge
            return self._judge


def main() -> None:
    workspace, *labels = map(Path, sys.argv[1:])
    if labels:
        groups._group = Drive(labels[0]).group  # type: ignore[assignment]
    asyncio.run(serve(workspace, _say_ready))


if __name__ == "__main__":
    main()
