"""Rows sent to trackers: by step, ART's names beside ours, settings without secrets."""

from engine.integrations.trackers.metrics import StepFilter, row_of, settings_of
from engine.protocol.config.project import JudgeConfig, ProjectConfig
from engine.protocol.config.tracking import TrackConfig, WandbConfig
from engine.protocol.events.run import MetricsLogged, RunFailed, StepFinished, ValidationFinished
from engine.protocol.events.sft import LossMeasured
from engine.protocol.problems import Problem
from engine.protocol.records.art_names import NAMES, art_metrics
from engine.protocol.records.metrics import metric
from engine.protocol.records.runs import Interval, RunSpec

METRICS = {
    "reward/mean": 0.25,
    "reward/std": 0.5,
    "reward/part/rules": 0.125,
    "unscored": 2.0,
    "trajectories": 8.0,
    "loss": -0.5,
    "clip/low": 0.25,
    "clip/high": 0.5,
    "time_s/step": 4.0,
}


def spec() -> RunSpec:
    config = ProjectConfig(
        judge=JudgeConfig(models=("openai/x",), base_url="https://me:secret@host/v1"),
        track=TrackConfig(wandb=WandbConfig(on=True, entity="me")),
    )
    return RunSpec(
        id="01J", name="amber-kestrel", project="inbox", started_at=1.0, config=config,
        model_path="/m", versions={"torch": "2.13.0"},
    )  # fmt: skip


def test_step_row_contains_our_and_art_names() -> None:
    row = row_of(StepFinished(seq=7, at=3.0, step=2, metrics=METRICS))
    assert row is not None
    assert (row["seq"], row["at"], row["step"]) == (7, 3.0, 2)
    assert METRICS.items() <= row["values"].items()
    art = {key: value for key, value in row["values"].items() if key not in METRICS}
    assert art == {
        "train/reward": 0.25,
        "train/reward_std_dev": 0.5,
        "train/rules": 0.125,
        "train/exception_rate": 0.25,
        "loss/train": -0.5,
        "loss/clipped_token_fraction": 0.75,
        "data/step_num_trajectories": 8.0,
        "time/step_wall_s": 4.0,
    }


def test_reward_part_does_not_replace_the_reward() -> None:
    metrics_ = art_metrics({"reward/mean": 0.5, "reward/part/reward": 0.1, "reward/part/a/b": 1.0})
    assert metrics_ == {"train/reward": 0.5, "train/a/b": 1.0}


def test_held_out_loss_and_script_metrics_are_sent() -> None:
    loss_row = row_of(
        LossMeasured(seq=3, at=1.0, step=4, loss=1.5, tokens=90, examples=7, seconds=2)
    )
    assert loss_row is not None
    assert (loss_row["step"], loss_row["values"]) == (
        4,
        {"validation/loss": 1.5, "validation/tokens": 90.0},
    )
    script_row = row_of(MetricsLogged(seq=4, at=1.0, step=5, split="val", values={"moves": 12.0}))
    assert script_row is not None
    assert (script_row["step"], script_row["values"]) == (5, {"script/val/moves": 12.0})


def test_no_rollouts_give_no_exception_rate() -> None:
    assert "train/exception_rate" not in art_metrics({"unscored": 0.0, "trajectories": 0.0})


def test_name_table_refers_to_existing_metrics() -> None:
    ours = {key for name in NAMES for key in name.ours}
    assert {key for key in ours if metric(key.replace("*", "x")) is None} == {"validation/reward"}
    assert len({name.art for name in NAMES}) == len(NAMES)


def test_validation_row_has_interval_or_no_reward() -> None:
    reward = Interval(mean=0.5, low=0.25, high=0.75, count=12)
    validation = ValidationFinished(
        seq=3, step=0, reward=reward, scenarios={}, unscored=1, seconds=2.0
    )  # fmt: skip
    row = row_of(validation)
    assert row is not None
    assert row["values"] == {
        "validation/reward": 0.5,
        "validation/low": 0.25,
        "validation/high": 0.75,
        "validation/scenarios": 12.0,
        "validation/unscored": 1.0,
        "validation/seconds": 2.0,
        "val/reward": 0.5,
    }
    unscored_row = row_of(validation.model_copy(update={"reward": None}))
    assert unscored_row is not None
    assert set(unscored_row["values"]) == {"validation/unscored", "validation/seconds"}
    judged_row = row_of(validation.model_copy(update={"criteria": {"Right answer": reward}}))
    assert judged_row is not None
    assert judged_row["values"]["validation/criterion/Right answer"] == 0.5


def test_failed_run_row_has_its_reason() -> None:
    failed = RunFailed(seq=9, step=4, problem=Problem(code="a.b", message="It broke."))
    row = row_of(failed)
    assert row is not None
    assert (row["state"], row["words"]) == ("failed", "It broke.")


def test_repeated_step_is_sent_once() -> None:
    once = StepFilter()
    steps = [StepFinished(seq=n, step=step, metrics={}) for n, step in enumerate((1, 2, 1, 2, 3))]
    assert [once.new(step) for step in steps] == [True, True, False, False, True]


def test_settings_are_flat_without_secrets() -> None:
    settings = settings_of(spec())
    assert settings["train.lr"] == 1e-5
    assert settings["judge.models"] == "openai/x"
    assert settings["judge.base_url"] == "https://host/v1"
    assert settings["versions.torch"] == "2.13.0"
    assert not [key for key in settings if key.startswith("track")]
    assert "secret" not in "".join(map(str, settings.values()))
