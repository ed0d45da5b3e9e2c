"""Forwarding of ART's `model.log`, with concurrent logs of the script."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine.integrations.art.logging import forward_logs


class Model:
    """Model stub that logs as ART does: a row of a file, with awaits before and after."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.waits: dict[str, asyncio.Event] = {}
        """Event per split that its log waits for after its row is written."""

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


ForwardedLogs = list[tuple[str, int, list[str], dict[str, float]]]


def forward_to_list(model: Model) -> ForwardedLogs:
    forwarded: ForwardedLogs = []

    async def forward(
        _: Any, split: str, step: int, groups: list[str], values: dict[str, float]
    ) -> None:
        forwarded.append((split, step, groups, values))

    forward_logs(model, forward)
    return forwarded


def test_concurrent_logs_forward_their_own_rows(tmp_path: Path) -> None:
    async def work() -> None:
        model.waits = {"val": asyncio.Event(), "test": asyncio.Event()}
        logs = [
            asyncio.create_task(model.log([f"of {split}"], split, metrics={"x": x}, step=3))
            for split, x in (("val", 1.0), ("test", 2.0))
        ]
        await asyncio.sleep(0)  # both have written their rows and wait
        for split, log in zip(("test", "val"), reversed(logs), strict=True):
            model.waits[split].set()
            await log

    model = Model(tmp_path)
    forwarded = forward_to_list(model)
    asyncio.run(work())
    assert forwarded == [
        ("test", 3, ["of test"], {"test/x": 2.0}),
        ("val", 3, ["of val"], {"val/x": 1.0}),
    ]


def test_non_finite_values_are_skipped_with_a_warning(tmp_path: Path) -> None:
    model = Model(tmp_path)
    forwarded = forward_to_list(model)
    figures = {"x": 1.0, "best": float("-inf"), "most": float("inf"), "none": float("nan")}
    with pytest.warns(UserWarning, match="not finite were skipped: val/best, val/most"):
        asyncio.run(model.log(metrics=figures, step=1))
    assert forwarded == [("val", 1, [], {"val/x": 1.0})]
