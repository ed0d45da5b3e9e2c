"""A project on cards: what does not fit comes with settings that do."""

from pathlib import Path

import pytest

from engine.hardware.memory_fixes import advice
from engine.hardware.memory_plan import job_of, preflight, smaller_settings, vram_plan
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import changed_config
from engine.protocol.records.hardware import Card, CardProcess
from tests.engine.hardware.models import write_headers

GB = 10**9


def card(total: int, others: int = 0, ours: int = 0, index: int = 0) -> Card:
    processes = (CardProcess(pid=1, bytes=ours, ours=True), CardProcess(pid=2, bytes=others))
    return Card(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA L40S",
        total_bytes=total,
        used_bytes=others + ours,
        free_bytes=total - others - ours,
        capability=(8, 9),
        processes=processes,
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_headers(tmp_path_factory.mktemp("models") / "llama-8b")


def config_of(**values: object) -> ProjectConfig:
    return changed_config(ProjectConfig(), {k.replace("__", "."): v for k, v in values.items()})


VLLM = config_of(backend__sampler="vllm")


def test_parts_add_up_to_the_phases(model: Path) -> None:
    made = vram_plan(VLLM, model, [card(80 * GB)])
    assert made is not None
    only = made.cards[0]
    assert made.fits
    assert made.fixes == ()
    assert sum(part.sampling_bytes for part in only.parts) == only.sampling_bytes
    assert sum(part.training_bytes for part in only.parts) == only.training_bytes
    assert only.peak_bytes == max(only.sampling_bytes, only.training_bytes)


def test_vllm_is_told_what_it_may_take_and_sleeps_only_where_it_must(model: Path) -> None:
    large, small = (vram_plan(VLLM, model, [card(size * GB)]) for size in (80, 56))
    assert large is not None
    assert small is not None
    assert (large.sleep, small.sleep) == ("off", "cache")
    parts = {part.name: part.sampling_bytes for part in large.cards[0].parts}
    names = ("vLLM's model", "keys and values", "vLLM's activations", "vLLM's graphs")
    taken = sum(parts[name] for name in names)
    assert large.memory_share == pytest.approx(taken / (80 * GB), abs=0.01)
    assert large.rows == large.rows_wanted == 64


def test_what_others_hold_is_not_there(model: Path) -> None:
    free = vram_plan(VLLM, model, [card(48 * GB)])
    held = vram_plan(VLLM, model, [card(48 * GB, others=30 * GB)])
    ours = vram_plan(VLLM, model, [card(48 * GB, ours=30 * GB)])
    assert free is not None
    assert held is not None
    assert free.fits
    assert not held.fits
    assert held.cards[0].room_bytes == 18 * GB
    assert ours is not None
    assert ours.fits


@pytest.mark.parametrize("size", [12, 16, 24, 32])
def test_fixes_save_what_they_say(model: Path, size: int) -> None:
    config = changed_config(VLLM, {"train.batch_tokens": 16_384, "model.max_context": 4096})
    made = vram_plan(config, model, [card(size * GB)])
    assert made is not None
    assert not made.fits
    assert made.fixes
    for fix in made.fixes:
        after = vram_plan(changed_config(config, fix.values), model, [card(size * GB)])
        assert after is not None
        assert after.fullest.peak_bytes == fix.peak_bytes
        assert after.fits == fix.fits
        assert fix.saves_bytes == made.fullest.peak_bytes - fix.peak_bytes > 0


def test_the_mildest_comes_first_and_together_they_may_do(model: Path) -> None:
    config = changed_config(VLLM, {"train.batch_tokens": 16_384, "backend.sleep": "off"})
    made = vram_plan(config, model, [card(24 * GB)])
    assert made is not None
    keys = [next(iter(fix.values)) for fix in made.fixes]
    assert keys[:2] == ["backend.sleep", "train.batch_tokens"]
    assert made.fixes[-1].words == "All changes"
    assert made.fixes[-1].fits


def test_four_bits_bring_an_eight_billion_model_onto_a_small_card(model: Path) -> None:
    config = changed_config(ProjectConfig(), {"model.rank": 16, "backend.recompute": True})
    made = vram_plan(config, model, [card(16 * GB)])
    assert made is not None
    assert not made.fits
    bits = next(fix for fix in made.fixes if "backend.weights" in fix.values)
    assert bits.fits
    assert bits.values["backend.trainer"] == "unsloth"


def test_two_cards_sample_on_the_first(model: Path) -> None:
    config = changed_config(VLLM, {"backend.processes": 2})
    made = vram_plan(config, model, [card(80 * GB), card(80 * GB, index=1)])
    assert made is not None
    first, second = made.cards
    assert {"vLLM's model"} <= {part.name for part in first.parts}
    assert {"vLLM's model"}.isdisjoint(part.name for part in second.parts)
    assert made.fullest == first


def test_staleness_adds_the_phases(model: Path) -> None:
    config = changed_config(VLLM, {"train.staleness": 1})
    made = vram_plan(config, model, [card(30 * GB)])
    assert made is not None
    assert made.overlaps
    assert made.sleep == "off"
    assert any(fix.values == {"train.staleness": 0} for fix in made.fixes)


def test_turns_and_group_size_are_in_the_job() -> None:
    config = ProjectConfig()
    assert job_of(config).context == config.model.max_context
    one = changed_config(config, {"agent.max_turns": 1, "train.max_tokens": 32})
    assert job_of(one).context == 256 + 32
    small = changed_config(one, {"train.groups": 1, "train.group_size": 2})
    assert job_of(small).rows == 2
    assert job_of(small).tokens == 256 + 2 * 31


def test_a_sequence_that_is_longer_than_a_batch_counts() -> None:
    config = changed_config(ProjectConfig(), {"model.max_context": 8192})
    assert job_of(config).tokens == 8192


def test_without_cards_the_forecast_is_as_before(tiny_model: Path, tmp_path: Path) -> None:
    made = preflight(ProjectConfig(), tiny_model, [], tmp_path)
    assert made.vram is None
    assert vram_plan(ProjectConfig(), tiny_model, []) is None


def test_memory_that_ran_out_gets_advice_with_numbers(model: Path) -> None:
    config = ProjectConfig()
    on_card, on_host = (
        smaller_settings(config, model, [card(80 * GB)]),
        smaller_settings(config, model, []),
    )
    assert next(iter(on_card[0].values)) == "train.batch_tokens"
    assert next(iter(on_host[0].values)) == "train.batch_tokens"
    assert not any("backend.weights" in fix.values for fix in on_host)
    words = advice(on_card[0], 80 * GB)
    assert words.startswith("train.batch_tokens = ")
    assert "of 80.0 GB" in words
