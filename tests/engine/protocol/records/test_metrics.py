"""Every step metric is documented in one place, in plain words."""

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


def test_each_says_in_one_line_what_it_is() -> None:
    assert len({m.key for m in METRICS}) == len(METRICS)
    for found in METRICS:
        assert found.words.endswith(".")
        assert len(found.words) <= 90
        assert not found.worry.endswith(".")
        assert found.unit in UNITS


def test_a_star_stands_for_a_name() -> None:
    for key, documented in (
        ("reward/part/turn cost", "reward/part/*"),
        ("time_s/rolling_out", "time_s/*"),
        ("time_s/step", "time_s/step"),
        ("clip/low", "clip/low"),
    ):
        found = metric(key)
        assert found is not None
        assert found.key == documented
    assert metric("reward/unheard_of") is None
    assert metric("reward") is None


def test_what_the_loop_says_is_documented() -> None:
    said = step_metrics([[trajectory(n) for n in range(8)]], GroupMean(), {}, Clock())
    assert [key for key in said if metric(key) is None] == []


def test_what_made_up_runs_say_is_documented() -> None:
    steps = [e for log in golden().values() for e in log if isinstance(e, StepFinished)]
    assert [key for step in steps for key in step.metrics if metric(key) is None] == []
    known = {key for step in steps for key in step.metrics}
    of_a_server = {"publish_moved", "staleness", "time_s/switch"}
    told_by_itself = {"validation/loss"}  # by `loss.measured`, also before the first step
    documented = {m.key for m in METRICS if "*" not in m.key}
    assert documented - of_a_server - told_by_itself <= known
