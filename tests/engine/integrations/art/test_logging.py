"""What `model.log` of ART writes is told, whatever else the script logs meanwhile."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine.integrations.art.logging import forward_logs


class Model:
    """Logs as ART does: a row of a file, and what it awaits before and after."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.waits: dict[str, asyncio.Event] = {}
        """By split: before its row is written, and before its log returns."""

    def _get_output_dir(self) -> str:
        return str(self._folder)

    def _log_metrics(self, metrics: dict[str, float], split: str, step: int) -> None:
        row = {f"{split}/{name}": value for name, value in metrics.items() if value == value}
        with (self._folder / "history.jsonl").open("a") as file:
            file.write(json.dumps(row | {"step": step}) + "\n")

    def _normalize_trajectory_groups(self, given: list[str]) -> list[str]:
        return given

    async def log(
        self,
        trajectories: Any = None,
        split: str = "val",
        *,
        metrics: dict[str, float] | None = None,
        step: int | None = None,
    ) -> None:
        self._log_metrics(metrics or {}, split, step or 0)
        if split in self.waits:
            await self.waits[split].wait()


Told = list[tuple[str, int, list[str], dict[str, float]]]


def telling(model: Model) -> Told:
    told: Told = []

    async def tell(
        _: Any, split: str, step: int, groups: list[str], values: dict[str, float]
    ) -> None:
        told.append((split, step, groups, values))

    forward_logs(model, tell)
    return told


def test_logs_at_once_each_bring_their_own(tmp_path: Path) -> None:
    async def work() -> None:
        model.waits = {"val": asyncio.Event(), "test": asyncio.Event()}
        logs = [
            asyncio.create_task(model.log([f"of {split}"], split, metrics={"x": x}, step=3))
            for split, x in (("val", 1.0), ("test", 2.0))
        ]
        await asyncio.sleep(0)  # both have written, and wait
        for split, log in zip(("test", "val"), reversed(logs), strict=True):
            model.waits[split].set()
            await log

    model = Model(tmp_path)
    told = telling(model)
    asyncio.run(work())
    assert told == [
        ("test", 3, ["of test"], {"test/x": 2.0}),
        ("val", 3, ["of val"], {"val/x": 1.0}),
    ]


def test_what_no_store_can_hold_is_left_out_and_said(tmp_path: Path) -> None:
    model = Model(tmp_path)
    told = telling(model)
    figures = {"x": 1.0, "best": float("-inf"), "most": float("inf"), "none": float("nan")}
    with pytest.warns(UserWarning, match="not finite were skipped: val/best, val/most"):
        asyncio.run(model.log(metrics=figures, step=1))
    assert told == [("val", 1, [], {"val/x": 1.0})]
