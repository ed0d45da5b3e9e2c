"""Engine for tests.bench.local_judge: plain, or with advantages from the local judge.

WORKSPACE [RUN]: the judge is fitted on the first informative groups of that run, labelled by their
rewards, when the first group is judged. Stored rewards are the rule's.
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
from tests.bench.local_judge import (
    FITTED,
    groups_of,
    groups_with_signal,
    preferences_by_rule,
    scores_of,
)


class LocalJudgeAdvantages:
    """Replaces the advantages of training groups by those of the local judge."""

    def __init__(self, labels: Path) -> None:
        self._exact = groups._group
        self._labelled = [
            [one.model_copy(update={"id": f"labelled {one.id}"}) for one in group]
            for group in groups_with_signal(groups_of(labels))[:FITTED]
        ]
        self._judge: LocalJudge | None = None
        self._once = asyncio.Lock()

    async def group(self, run: Any, stage: Stage, split: str, *rest: Any) -> list[Trajectory]:
        siblings = await self._exact(run, stage, split, *rest)  # type: ignore[arg-type]
        if split != "train":
            return siblings
        scores = await scores_of(await self._fitted(stage), siblings)
        kind = run.config.train.algorithm.advantage
        judged = advantages(kind, [scores.get(one.id) for one in siblings])
        return [
            one.model_copy(update={"advantage": advantage})
            for one, advantage in zip(siblings, judged, strict=True)
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
        groups._group = LocalJudgeAdvantages(labels[0]).group  # type: ignore[assignment]
    asyncio.run(serve(workspace, _say_ready))


if __name__ == "__main__":
    main()
