"""Lines of the preflight: disk space of checkpoints."""

import pytest

from engine.protocol.records.forecast import Forecast
from studio.pages.setup.preflight.checks import disk_checks


@pytest.mark.parametrize(
    ("need", "line"),
    [
        (2 * 10**9, ("good", "8 checkpoints take 2 GB of 40 GB free disk")),
        (50 * 10**9, ("bad", "8 checkpoints take 50 GB of 40 GB free disk")),
        (None, ("open", "8 checkpoints of unknown size; 40 GB free disk")),
    ],
)
def test_unknown_size_is_not_shown_as_nothing(need: int | None, line: tuple[str, str]) -> None:
    forecast = Forecast(
        weights_bytes=1, sampler_bytes=1, adapter_bytes=1, activations_bytes=1, available_bytes=9,
        step_low_s=1, step_high_s=2, steps=9, disk_bytes=need, disk_free_bytes=40 * 10**9, kept=8,
        measured=False,
    )  # fmt: skip
    assert disk_checks(forecast) == [line]
