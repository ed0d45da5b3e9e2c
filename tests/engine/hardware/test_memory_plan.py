"""GPU memory plan of a project; a plan that does not fit comes with fixes."""

from pathlib import Path

import pytest

from engine.hardware.memory_fixes import advice
from engine.hardware.memory_plan import job_of, preflight, smaller_settings, vram_plan
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import changed_config
from engine.protocol.records.machine.hardware import Card, CardProcess
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
    plan = vram_plan(VLLM, model, [card(80 * GB)])
    assert plan is not None
    only_card = plan.cards[0]
    assert plan.fits
    assert plan.fixes == ()
    assert sum(part.sampling_bytes for part in only_card.parts) == only_card.sampling_bytes
    assert sum(part.training_bytes for part in only_card.parts) == only_card.training_bytes
    assert only_card.peak_bytes == max(only_card.sampling_bytes, only_card.training_bytes)


def test_vllm_memory_share_is_set_and_sleep_only_when_needed(model: Path) -> None:
    large, small = (vram_plan(VLLM, model, [card(size * GB)]) for size in (80, 56))
    assert large is not None
    assert small is not None
    assert (large.sleep, small.sleep) == ("off", "cache")
    parts = {part.name: part.sampling_bytes for part in large.cards[0].parts}
    names = ("vLLM's model", "keys and values", "vLLM's activations", "vLLM's graphs")
    vllm_bytes = sum(parts[name] for name in names)
    assert large.memory_share == pytest.approx(vllm_bytes / (80 * GB), abs=0.01)
    assert large.rows == large.rows_wanted == 64


def test_memory_of_other_processes_is_unavailable(model: Path) -> None:
    free = vram_plan(VLLM, model, [card(48 * GB)])
    occupied = vram_plan(VLLM, model, [card(48 * GB, others=30 * GB)])
    ours = vram_plan(VLLM, model, [card(48 * GB, ours=30 * GB)])
    assert free is not None
    assert occupied is not None
    assert free.fits
    assert not occupied.fits
    assert occupied.cards[0].room_bytes == 18 * GB
    assert ours is not None
    assert ours.fits


@pytest.mark.parametrize("size", [12, 16, 24, 32])
def test_fixes_save_the_stated_bytes(model: Path, size: int) -> None:
    config = changed_config(VLLM, {"train.batch_tokens": 16_384, "model.max_context": 4096})
    plan = vram_plan(config, model, [card(size * GB)])
    assert plan is not None
    assert not plan.fits
    assert plan.fixes
    for fix in plan.fixes:
        after = vram_plan(changed_config(config, fix.values), model, [card(size * GB)])
        assert after is not None
        assert after.fullest.peak_bytes == fix.peak_bytes
        assert after.fits == fix.fits
        assert fix.saves_bytes == plan.fullest.peak_bytes - fix.peak_bytes > 0


def test_mildest_fix_is_first_and_all_together_fit(model: Path) -> None:
    config = changed_config(VLLM, {"train.batch_tokens": 16_384, "backend.sleep": "off"})
    plan = vram_plan(config, model, [card(24 * GB)])
    assert plan is not None
    keys = [next(iter(fix.values)) for fix in plan.fixes]
    assert keys[:2] == ["backend.sleep", "train.batch_tokens"]
    assert plan.fixes[-1].words == "All changes"
    assert plan.fixes[-1].fits


def test_4bit_weights_fit_an_8b_model_on_a_small_gpu(model: Path) -> None:
    config = changed_config(ProjectConfig(), {"model.rank": 16, "backend.recompute": True})
    plan = vram_plan(config, model, [card(16 * GB)])
    assert plan is not None
    assert not plan.fits
    bits = next(fix for fix in plan.fixes if "backend.weights" in fix.values)
    assert bits.fits
    assert bits.values["backend.trainer"] == "unsloth"


def test_vllm_runs_only_on_the_first_of_two_gpus(model: Path) -> None:
    config = changed_config(VLLM, {"backend.processes": 2})
    plan = vram_plan(config, model, [card(80 * GB), card(80 * GB, index=1)])
    assert plan is not None
    first, second = plan.cards
    assert {"vLLM's model"} <= {part.name for part in first.parts}
    assert {"vLLM's model"}.isdisjoint(part.name for part in second.parts)
    assert plan.fullest == first


def test_staleness_overlaps_the_phases(model: Path) -> None:
    config = changed_config(VLLM, {"train.staleness": 1})
    plan = vram_plan(config, model, [card(30 * GB)])
    assert plan is not None
    assert plan.overlaps
    assert plan.sleep == "off"
    assert any(fix.values == {"train.staleness": 0} for fix in plan.fixes)


def test_max_turns_and_group_size_limit_the_job() -> None:
    config = ProjectConfig()
    assert job_of(config).context == config.model.max_context
    one_turn = changed_config(config, {"agent.max_turns": 1, "train.max_tokens": 32})
    assert job_of(one_turn).context == 256 + 32
    small = changed_config(one_turn, {"train.groups": 1, "train.group_size": 2})
    assert job_of(small).rows == 2
    assert job_of(small).tokens == 256 + 2 * 31


def test_sequence_longer_than_a_batch_sets_the_tokens() -> None:
    config = changed_config(ProjectConfig(), {"model.max_context": 8192})
    assert job_of(config).tokens == 8192


def test_plan_without_gpus_is_none(tiny_model: Path, tmp_path: Path) -> None:
    plan = preflight(ProjectConfig(), tiny_model, [], tmp_path)
    assert plan.vram is None
    assert vram_plan(ProjectConfig(), tiny_model, []) is None


def test_smaller_settings_and_advice_name_numbers(model: Path) -> None:
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
