"""Documentation of step metrics."""

from engine.protocol.config.algorithm import GroupMean
from engine.protocol.events.run import StepFinished
from engine.protocol.records.metrics import METRICS, metric
from engine.training.step.metrics import Clock, step_metrics
from tests.engine.storage.run_db.test_store import trajectory
from tests.studio.fakes.golden import golden

UNITS = {
    "",
    "share",
    "nats",
    "tokens",
    "tokens/s",
    "s",
    "trajectories",
    "sequences",
    "groups",
    "calls",
    "updates",
}


def test_every_metric_has_a_one_line_description() -> None:
    assert len({m.key for m in METRICS}) == len(METRICS)
    for metric_ in METRICS:
        assert metric_.words.endswith(".")
        assert len(metric_.words) <= 90
        assert not metric_.worry.endswith(".")
        assert metric_.unit in UNITS


def test_star_matches_any_name() -> None:
    for key, documented in (
        ("reward/part/turn cost", "reward/part/*"),
        ("time_s/rolling_out", "time_s/*"),
        ("time_s/step", "time_s/step"),
        ("clip/low", "clip/low"),
    ):
        metric_ = metric(key)
        assert metric_ is not None
        assert metric_.key == documented
    assert metric("reward/unheard_of") is None
    assert metric("reward") is None


def test_step_metrics_are_documented() -> None:
    metrics = step_metrics([[trajectory(n) for n in range(8)]], GroupMean(), {}, Clock())
    assert [key for key in metrics if metric(key) is None] == []


def test_golden_run_metrics_are_documented_and_complete() -> None:
    steps = [e for log in golden().values() for e in log if isinstance(e, StepFinished)]
    assert [key for step in steps for key in step.metrics if metric(key) is None] == []
    recorded = {key for step in steps for key in step.metrics}
    server_metrics = {"publish_moved", "staleness", "time_s/switch"}
    # from `loss.measured` and `validation.finished`, also before the first step
    event_metrics = {"validation/loss", "validation/win_rate"}
    gateway_metrics = {
        "tokens/reasoning_mean", "reasoning_closed", "malformed_calls", "capped_calls",
    }  # fmt: skip  # only if any
    documented = {m.key for m in METRICS if "*" not in m.key}
    assert documented - server_metrics - event_metrics - gateway_metrics <= recorded
