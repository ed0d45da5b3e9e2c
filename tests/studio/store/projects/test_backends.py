"""What is said beside each setting of the backend, by what the engine has."""

from typing import Any

import pytest
from pydantic import ValidationError

from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.backends import BackendFacts, ignored
from studio.store.projects.backends import SETTINGS, checks, notes, summary
from studio.store.runs.backend_labels import precision, programs, restarts
from studio.store.runs.state import RunState
from tests.studio.fakes.made_backends import (
    BARE_CARD,
    GPU_ENGINE,
    IDLE_CARD,
    PROCESSOR,
    living,
    restarted,
)


def config(staleness: int = 0, **backend: Any) -> ProjectConfig:
    return ProjectConfig.model_validate({"backend": backend, "train": {"staleness": staleness}})


def test_the_defaults_need_nothing_anywhere() -> None:
    for facts in (None, PROCESSOR, IDLE_CARD, BARE_CARD, GPU_ENGINE):
        found = notes(config(), facts)
        assert checks(found) == []
        assert {note.tone for note in found.values()} == {"faint"}


@pytest.mark.parametrize(
    ("facts", "tone", "words", "link"),
    [
        (PROCESSOR, "info", "460 MB to download, 1.4 GB on disk", ("", "")),
        (IDLE_CARD, "info", "Only the GPU engine uses your GPU", SETTINGS),
        (BARE_CARD, "bad", "Install the GPU engine", SETTINGS),
        (GPU_ENGINE, "faint", "Checked at each update", ("", "")),
    ],
)
def test_vllm_is_there_comes_or_is_missing(
    facts: BackendFacts, tone: str, words: str, link: tuple[str, str]
) -> None:
    note = notes(config(sampler="vllm"), facts)["backend.sampler"]
    assert (note.tone, note.link) == (tone, link)
    assert words in note.words


def test_what_cannot_work_is_said_before_training() -> None:
    wanted = config(1, sampler="vllm", trainer="unsloth", weights="4bit", processes=2)
    assert checks(notes(wanted, BARE_CARD)) == [
        ("bad", "vLLM is not installed"),
        ("bad", "Unsloth is not installed"),
        ("bad", "2 trainers, 1 GPU"),
    ]
    assert checks(notes(wanted, PROCESSOR))[0] == ("bad", "Weights in 4 bits need a GPU")
    assert checks(notes(wanted, GPU_ENGINE)) == []
    assert summary(wanted) == "2 trainers · staleness 1"


@pytest.mark.parametrize(
    ("wanted", "cards", "keys"),
    [
        (config(2, memory_share=0.5, sleep="all"), None,
         {"backend.memory_share", "backend.sleep", "train.staleness"}),
        (config(sampler="vllm", memory_share=0.5, share_card=True), 0,
         {"backend.memory_share", "backend.share_card"}),
        (config(1, sampler="vllm", sleep="all"), 1, {"backend.sleep"}),
        (config(sampler="vllm", sleep="cache"), 2, {"backend.sleep"}),
        (config(1, sampler="vllm", memory_share=0.5), 1, set()),
        (config(sampler="vllm", sleep="cache"), 1, set()),
    ],
)  # fmt: skip
def test_settings_without_effect_are_named(
    wanted: ProjectConfig, cards: int | None, keys: set[str]
) -> None:
    assert set(ignored(wanted, cards)) == keys


def test_fewer_bits_without_unsloth_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValidationError) as refused:
        config(weights="4bit")
    (told,) = refused.value.errors()
    assert "backend.trainer to unsloth" in told["msg"]
    assert "backend.weights to full" in told["msg"]
    assert config(weights="4bit", trainer="unsloth").backend.weights == "4bit"


def test_a_run_says_what_samples_and_what_trains() -> None:
    state = RunState("r").fold(living().events)
    found = programs(state)
    assert found is not None
    assert (found.sampler, found.trainer) == ("vLLM 0.31.0, float32", "PyTorch 2.13.0, float32")
    assert found.alike
    assert precision(state) == "float32"
    other = RunState("r").fold(living("differs", dtype="float32", sampler="bfloat16").events)
    assert programs(other) is not None
    assert not programs(other).alike  # type: ignore[union-attr]
    assert precision(other) == "bfloat16"
    assert programs(RunState("r")) is None


def test_a_restart_is_told_with_its_reason() -> None:
    state = RunState("r").fold(restarted().events)
    told = restarts(state)
    assert told is not None
    assert told[0] == "The sampler was restarted 2 times"
    assert "its process ended" in told[1]
    assert "from their last token" in told[1]
    lines = [line for line in state.log if line.source == "sampler"]
    assert [line.level for line in lines] == ["warning", "warning"]
    assert "Restarting" in lines[0].text
