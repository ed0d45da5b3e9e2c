"""Notes at backend settings, depending on what the engine provides."""

from typing import Any

import pytest
from pydantic import ValidationError

from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.machine.backends import BackendFacts, ignored
from studio.store.projects.backends import SETTINGS, checks, notes, summary
from studio.store.runs.backend_labels import precision, programs, restarts
from studio.store.runs.state import RunState
from tests.studio.fakes.made_backends import (
    BARE_CARD,
    CLUSTER,
    GPU_ENGINE,
    IDLE_CARD,
    PROCESSOR,
    active_run,
    restarted_run,
)


def config(staleness: int = 0, **backend: Any) -> ProjectConfig:
    return ProjectConfig.model_validate({"backend": backend, "train": {"staleness": staleness}})


def test_defaults_need_no_installation() -> None:
    for facts in (None, PROCESSOR, IDLE_CARD, BARE_CARD, GPU_ENGINE):
        setting_notes = notes(config(), facts)
        assert checks(setting_notes) == []
        assert {note.tone for note in setting_notes.values()} == {"faint"}


@pytest.mark.parametrize(
    ("facts", "tone", "words", "link"),
    [
        (PROCESSOR, "info", "460 MB to download, 1.4 GB on disk", ("", "")),
        (IDLE_CARD, "info", "Only the GPU engine uses your GPU", SETTINGS),
        (BARE_CARD, "bad", "Install the GPU engine", SETTINGS),
        (GPU_ENGINE, "faint", "Log-probs are checked at each update", ("", "")),
    ],
)
def test_note_of_vllm_sampler_depends_on_engine(
    facts: BackendFacts, tone: str, words: str, link: tuple[str, str]
) -> None:
    note = notes(config(sampler="vllm"), facts)["backend.sampler"]
    assert (note.tone, note.link) == (tone, link)
    assert words in note.words


def test_impossible_settings_are_reported_before_training() -> None:
    settings = config(1, sampler="vllm", trainer="unsloth", weights="4bit", processes=2)
    assert checks(notes(settings, BARE_CARD)) == [
        ("bad", "vLLM is not installed"),
        ("bad", "Unsloth is not installed"),
        ("bad", "2 trainers, 1 GPU"),
    ]
    assert checks(notes(settings, PROCESSOR))[0] == ("bad", "Weights in 4 bits need a GPU")
    assert checks(notes(settings, GPU_ENGINE)) == []
    assert summary(settings) == "2 trainers · staleness 1"


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
def test_settings_without_effect_are_listed(
    wanted: ProjectConfig, cards: int | None, keys: set[str]
) -> None:
    assert set(ignored(wanted, cards)) == keys


def test_quantized_weights_require_unsloth() -> None:
    with pytest.raises(ValidationError) as refused:
        config(weights="4bit")
    (error,) = refused.value.errors()
    assert "backend.trainer to unsloth" in error["msg"]
    assert "backend.weights to full" in error["msg"]
    assert config(weights="4bit", trainer="unsloth").backend.weights == "4bit"


def test_programs_name_sampler_and_trainer_of_run() -> None:
    state = RunState("r").fold(active_run().events)
    stack = programs(state)
    assert stack is not None
    assert (stack.sampler, stack.trainer) == ("vLLM 0.31.0, float32", "PyTorch 2.13.0, float32")
    assert stack.alike
    assert precision(state) == "float32"
    other = RunState("r").fold(active_run("differs", dtype="float32", sampler="bfloat16").events)
    assert programs(other) is not None
    assert not programs(other).alike  # type: ignore[union-attr]
    assert precision(other) == "bfloat16"
    assert programs(RunState("r")) is None


def test_restarts_are_reported_with_reason() -> None:
    state = RunState("r").fold(restarted_run().events)
    texts = restarts(state)
    assert texts is not None
    assert texts[0] == "The sampler was restarted 2 times"
    assert "its process ended" in texts[1]
    assert "from their last token" in texts[1]
    lines = [line for line in state.log if line.source == "sampler"]
    assert [line.level for line in lines] == ["warning", "warning"]
    assert "Restarting" in lines[0].text


def test_run_on_a_cluster_names_what_was_measured() -> None:
    found = programs(RunState("r").fold(active_run("cluster", cluster=CLUSTER).events))
    assert found is not None
    assert (found.sampler, found.trainer) == ("lab-8xh100, float32", "lab-8xh100, float32")
    assert found.alike
    assert found.cluster.startswith("mean over sequences · mean over tokens · ignores clipping")
