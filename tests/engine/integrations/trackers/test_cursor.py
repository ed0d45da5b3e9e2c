"""Tracker cursors: upload position per target, one sender at a time."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from engine.integrations.trackers.cursor import (
    Cursor,
    cursor_for,
    hold_tracker,
    read_cursor,
    target_of,
    write_cursor,
)
from engine.protocol.config.tracking import (
    TRACKERS,
    MlflowConfig,
    OtelConfig,
    TrackConfig,
    TrackerView,
    sentence_of,
    switched_on,
    tracker_keys_in,
)
from engine.protocol.problems import Refused


def test_cursor_belongs_to_one_target(tmp_path: Path) -> None:
    assert read_cursor(tmp_path, "mlflow") is None
    write_cursor(tmp_path, "mlflow", Cursor(target="here", seq=7))
    assert cursor_for(tmp_path, "mlflow", "here").seq == 7
    assert cursor_for(tmp_path, "mlflow", "elsewhere").seq == 0
    (tmp_path / "track" / "mlflow.json").write_text("{")
    assert cursor_for(tmp_path, "mlflow", "here").seq == 0


def test_target_depends_on_the_address_only() -> None:
    def target(**values: object) -> str:
        return target_of(OtelConfig.model_validate(values).model_dump(mode="json"))

    assert target(on=True, content=True) == target()
    assert target(endpoint="http://a:1") != target(endpoint="http://b:1")


def test_only_one_sender_uploads_at_a_time(tmp_path: Path) -> None:
    with hold_tracker(tmp_path, "wandb"), hold_tracker(tmp_path, "mlflow"):
        with (
            pytest.raises(Refused, match=r"already uploads this run to W&B"),
            hold_tracker(tmp_path, "wandb"),
        ):
            pass
    with hold_tracker(tmp_path, "wandb"):
        pass


@pytest.mark.parametrize(
    "address", ["127.0.0.1:5000", "ftp://a", "http://", "https://me:key@host", "http://a b"]
)
def test_invalid_address_is_rejected(address: str) -> None:
    with pytest.raises(ValidationError, match="is not a URL"):
        MlflowConfig(uri=address)


def test_trackers_are_off_by_default_and_need_an_address() -> None:
    assert switched_on(TrackConfig()) == []
    assert switched_on(TrackConfig(otel=OtelConfig(on=True))) == ["otel"]
    assert MlflowConfig(uri="http://host:5000/").uri == "http://host:5000"
    with pytest.raises(ValidationError, match=r"set track\.mlflow\.uri"):
        TrackConfig(mlflow=MlflowConfig(on=True, uri=""))


def test_tracker_keys_are_read_from_the_environment() -> None:
    variables = {
        "WANDB_API_KEY": "w", "LANGFUSE_PUBLIC_KEY": "p", "LANGFUSE_SECRET_KEY": "s",
        "OPENAI_API_KEY": "o", "OTEL_EXPORTER_OTLP_HEADERS": "",
    }  # fmt: skip
    assert tracker_keys_in(variables) == {"wandb": "w", "langfuse": "p:s"}


def test_every_state_has_a_sentence_with_the_tracker_name() -> None:
    for name, title in TRACKERS.items():
        for state in ("opening", "in_step", "behind", "unsent"):
            view = TrackerView(name=name, state=state, behind=3)  # type: ignore[arg-type]
            assert sentence_of(view).startswith(title)
