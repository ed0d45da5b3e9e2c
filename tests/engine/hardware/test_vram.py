"""Memory parts of one GPU, computed by hand, in each phase."""

from dataclasses import replace

import pytest

from engine.hardware import vram
from engine.hardware.flops import ModelShape
from engine.hardware.vram import Job, Plan
from tests.engine.hardware.models import LLAMA_8B

SHAPE = ModelShape(
    body=1000,
    adapter=100,
    hidden=8,
    vocabulary=50,
    query_heads=4,
    key_heads=2,
    head_size=2,
    windows=(None,) * 3,
    width_bytes=2,
    intermediate=20,
)
REST = 400
ROOM = 10**12
LLAMA = LLAMA_8B.shape(LLAMA_8B.adapter(16))


def plan_of(job: Job, room: int = 80 * 10**9) -> Plan:
    recipe = vram.recipe_of(LLAMA, job.storage, checkpointing=False)
    return vram.plan(LLAMA, LLAMA_8B.rest, job, recipe, room)


def test_weight_bytes_match_hand_computed_values() -> None:
    assert vram.weight_bytes(SHAPE, REST, "full") == 2 * 1400
    assert vram.weight_bytes(SHAPE, REST, "8bit") == 2 * 400 + 1000 + 1000 // 8 * 4
    assert vram.weight_bytes(SHAPE, REST, "4bit") == 2 * 400 + int(1000 * 4.127 / 8)


def test_4bit_weight_bytes_of_8b_match_the_paper() -> None:
    """Embedding and head stay in 16 bits: 2.1 of the 5.7 GB."""
    assert vram.weight_bytes(LLAMA, LLAMA_8B.rest, "4bit") == pytest.approx(5.70e9, rel=0.01)


def test_activation_bytes_match_hand_computed_values() -> None:
    ours = vram.recipe_of(SHAPE, "full", checkpointing=False)
    # 16 hidden and 3 intermediate vectors of 2 bytes
    assert vram.activation_bytes(SHAPE, 10, ours) == 10 * 3 * (32 * 8 + 6 * 20)
    checkpointed = vram.recipe_of(SHAPE, "full", checkpointing=True)
    assert vram.activation_bytes(SHAPE, 10, checkpointed) == 10 * 3 * 8 * 2
    # one recomputed layer, and the gradients of 4 hidden and 3 intermediate vectors
    layer = 10 * (32 * 8 + 6 * 20) + 10 * 2 * (4 * 8 + 3 * 20)
    head = 10 * 8 * 12 + 10 * 50 * (8 + 2)
    assert vram.head_bytes(SHAPE, 10, checkpointed) == head
    assert vram.working_bytes(SHAPE, 10, checkpointed) == max(layer, head)


def test_server_bytes_match_the_published_profile() -> None:
    """pull request 10511 of vllm-project/vllm: Llama-3-8B, 1.26 GiB."""
    assert vram.server_bytes(LLAMA) == pytest.approx(1.26 * 2**30, rel=0.1)


def test_adapter_part_has_18_bytes_per_weight() -> None:
    part = next(p for p in plan_of(Job(2048, 1024, 64)).parts if p.name == vram.ADAPTER)
    assert part.sampling == part.training == 18 * LLAMA.adapter


def test_peak_is_the_larger_phase_unless_they_overlap() -> None:
    job = Job(2048, 1024, 64, sampler="vllm", sleep="all")
    alternating = plan_of(job)
    assert (
        alternating.peak == max(alternating.sampling, alternating.training) < alternating.together
    )
    overlapping = plan_of(job._replace(overlaps=True))
    assert (
        overlapping.peak
        == overlapping.sampling
        == overlapping.training
        == overlapping.together
        > alternating.peak
    )


def test_sleep_frees_cache_and_server_memory() -> None:
    job = Job(2048, 1024, 64, sampler="vllm")
    no_sleep, cache, all_ = (plan_of(job._replace(sleep=s)) for s in ("off", "cache", "all"))
    cache_bytes = vram.cache_bytes(LLAMA, 64, 1024)
    assert no_sleep.training - cache.training == cache_bytes
    server_bytes = vram.weight_bytes(LLAMA, LLAMA_8B.rest, "full") + vram.server_bytes(LLAMA)
    assert cache.training - all_.training == server_bytes
    assert no_sleep.sampling == cache.sampling == all_.sampling


def test_cache_takes_the_remaining_memory_and_at_least_one_row() -> None:
    job = Job(2048, 32_768, 256, sampler="vllm", sleep="all")
    small = plan_of(job, room=48 * 10**9)
    assert small.peak <= 48 * 10**9
    assert small.sampling == 48 * 10**9
    too_small = plan_of(job, room=20 * 10**9)
    assert too_small.bytes_of(vram.CACHE) == vram.cache_bytes(LLAMA, 1, 32_768)
    assert too_small.peak > 20 * 10**9


def test_configured_share_is_the_memory_of_vllm() -> None:
    job = Job(2048, 1024, 64, sampler="vllm", sleep="all", share_bytes=30 * 10**9)
    assert plan_of(job).bytes_of(*vram.OF_VLLM) == 30 * 10**9


def test_own_sampler_keeps_its_cache_during_training() -> None:
    plan = plan_of(Job(2048, 1024, 64))
    cache = next(part for part in plan.parts if part.name == vram.CACHE)
    assert cache.sampling == cache.training > 0
    assert next(part for part in plan.parts if part.name == vram.PREFILL).training == 0


def test_training_only_gpu_has_no_sampler_parts() -> None:
    plan = plan_of(Job(2048, 1024, 0, sampler="vllm", peers=1))
    names = {part.name for part in plan.parts}
    assert not names & {*vram.OF_VLLM, vram.COPIES, vram.PREFILL}
    programs = next(part for part in plan.parts if part.name == vram.PROGRAMS)
    assert programs.sampling == vram.CONTEXT_BYTES + vram.NCCL_BYTES


@pytest.mark.parametrize(
    "more", [{"tokens": 4096}, {"context": 4096}, {"rows": 256}, {"sampler": "vllm"}]
)
def test_larger_job_needs_more_memory(more: dict[str, object]) -> None:
    job = Job(2048, 1024, 64)
    assert plan_of(job._replace(**more), ROOM).peak > plan_of(job, ROOM).peak  # type: ignore[arg-type]


def test_fewer_bits_need_less_memory() -> None:
    job = Job(2048, 1024, 64, sampler="vllm", sleep="all")
    peaks = [plan_of(job._replace(storage=s)).peak for s in ("full", "8bit", "4bit")]
    assert peaks == sorted(peaks, reverse=True)


GB = 10**9
TINY = Job(tokens=10, context=7, rows=4)
"""Job on `SHAPE`: 28 prompt tokens, 336 bytes of KV cache in each of 4 sequences."""
TRAINED = {
    vram.MODEL: (2800, 2800),
    vram.ADAPTER: (1800, 1800),
    vram.ACTIVATIONS: (0, 11_280),
    vram.LOGITS: (0, 5960),
    vram.PROGRAMS: (GB // 2, GB // 2),
    vram.HOLES: (0, 862),
}
"""18 bytes per adapter weight; 10 tokens in 3 layers of 32 · 8 + 6 · 20 bytes; 10 · (8 · 12 + 50 ·
10) bytes of logits; a twentieth of both."""
SAMPLING = GB // 2 + 4600
"""Memory in use during sampling, without the sampler."""
SERVER = 8192 * 2 * (4 * 8 + 3 * 20) + 256 * 50 * 10
"""Bytes of vLLM's activations."""
GRAPHS = 600_000_000


def parts(job: Job, room: int) -> dict[str, tuple[int, int]]:
    recipe = vram.recipe_of(SHAPE, job.storage, checkpointing=False)
    plan = vram.plan(SHAPE, REST, job, recipe, room)
    assert plan.overlaps is (job.overlaps and job.trains)
    return {part.name: (part.sampling, part.training) for part in plan.parts}


@pytest.mark.parametrize(
    ("job", "free", "copies", "prompts", "cache"),
    [
        pytest.param(TINY, 100_000, 3000, 5152, 4 * 336, id="room for all"),
        pytest.param(TINY, 11_999, 0, 5152, 336, id="no room for copies"),
        pytest.param(TINY, 12_000, 3000, 5152, 336, id="just room for copies"),
        pytest.param(TINY, -1, 0, 5152, 336, id="no room"),
        pytest.param(
            Job(10, 1000, 64), 1_000_000, 3000, 2048 * 184, 300_000, id="share of the free memory"
        ),
        pytest.param(
            Job(10, 1000, 64), 500_000, 3000, 2048 * 184, 500_000 - 3000 - 2048 * 184, id="rest"
        ),
    ],
)
def test_own_sampler_parts_match_hand_computed_values(
    job: Job, free: int, copies: int, prompts: int, cache: int
) -> None:
    expected = TRAINED | {vram.PREFILL: (prompts, 0), vram.CACHE: (cache, cache)}
    if copies:
        expected[vram.COPIES] = (copies, copies)
    assert parts(job, SAMPLING + free) == expected


def test_own_sampler_beside_overlapping_trainer() -> None:
    """Overlapping phases leave 0.5 MB, of which copies and prompts take a part."""
    together = sum(max(part) for part in TRAINED.values())
    job = Job(10, 1000, 64, overlaps=True)
    cache = 500_000 - 3000 - 2048 * 184
    assert parts(job, together + 500_000)[vram.CACHE] == (cache, cache)


def test_quantised_weights_have_no_copies() -> None:
    parts_ = parts(TINY._replace(storage="8bit"), GB)
    assert parts_[vram.MODEL] == (2300, 2300)
    assert vram.COPIES not in parts_


@pytest.mark.parametrize(
    ("sleep", "overlaps", "model", "server", "cache"),
    [
        ("off", False, 2800, SERVER, 1344),
        ("cache", False, 2800, SERVER, 0),
        ("all", False, 0, 0, 0),
        ("all", True, 2800, SERVER, 1344),
    ],
)
def test_vllm_parts_match_hand_computed_values(
    sleep: vram.Sleep, overlaps: bool, model: int, server: int, cache: int
) -> None:
    job = TINY._replace(sampler="vllm", sleep=sleep, overlaps=overlaps)
    assert parts(job, 10 * GB) == TRAINED | {
        vram.PROGRAMS: (GB, GB),
        vram.SERVED: (2800, model),
        vram.SERVER: (SERVER, server),
        vram.GRAPHS: (GRAPHS, GRAPHS),
        vram.CACHE: (1344, cache),
    }


@pytest.mark.parametrize(("sleep", "extra_cache"), [("off", 0), ("cache", 18_102), ("all", 18_102)])
def test_sleeping_vllm_caches_in_the_trainers_memory(sleep: vram.Sleep, extra_cache: int) -> None:
    """Training takes 18 102 bytes more than sampling."""
    job = TINY._replace(sampler="vllm", sleep=sleep, context=10_000)
    sampling = GB + 4600 + 2800 + SERVER + GRAPHS
    least, room = 480_000, sampling + 18_102 + 500_000
    assert parts(job, room)[vram.CACHE][0] == 500_000 + extra_cache
    assert parts(job, sampling)[vram.CACHE][0] == least


def test_vllm_only_gpu_matches_hand_computed_values() -> None:
    job = TINY._replace(sampler="vllm", trains=False, overlaps=True)
    expected = {
        vram.PROGRAMS: (GB // 2, GB // 2),
        vram.SERVED: (2800, 2800),
        vram.SERVER: (SERVER, SERVER),
        vram.GRAPHS: (GRAPHS, GRAPHS),
        vram.CACHE: (1344, 1344),
    }
    assert parts(job._replace(overlaps=False), 10 * GB) == expected
    assert parts(job, 10 * GB) == expected
    assert parts(job._replace(storage="8bit"), 10 * GB)[vram.SERVED] == (2300, 2300)
    tight = sum(sampling for sampling, _ in expected.values()) - 1
    assert parts(job, tight)[vram.CACHE] == (1343, 1343)


def test_vllm_share_limits_its_cache() -> None:
    job = TINY._replace(sampler="vllm", share_bytes=2800 + SERVER + GRAPHS + 500)
    assert parts(job, GB)[vram.CACHE] == (500, 500)
    assert vram.CACHE not in parts(job._replace(share_bytes=2800), GB)


def test_training_only_gpu_matches_hand_computed_values() -> None:
    assert parts(TINY._replace(rows=0), GB) == TRAINED
    with_peers = parts(TINY._replace(rows=0, peers=3), GB)
    assert with_peers == TRAINED | {vram.PROGRAMS: (800_000_000, 800_000_000)}


def test_plan_phases_match_hand_computed_values() -> None:
    two = (vram.Part("a", 5, 3), vram.Part("b", 1, 4))
    alternating, overlapping = Plan(two, False), Plan(two, True)
    assert (alternating.sampling, alternating.training, alternating.together, alternating.peak) == (
        6,
        7,
        9,
        7,
    )
    assert (overlapping.sampling, overlapping.training, overlapping.together, overlapping.peak) == (
        9,
        9,
        9,
        9,
    )
    assert [alternating.bytes_of(*names) for names in (("a",), ("b",), ("a", "b"), ())] == [
        5,
        4,
        9,
        0,
    ]


def test_training_bytes_match_hand_computed_values() -> None:
    recipe = vram.recipe_of(SHAPE, "full", checkpointing=False)
    assert vram.training_bytes(SHAPE, REST, 10, "full", recipe) == 2800 + 1800 + 11_280 + 5960
    assert vram.training_bytes(SHAPE, REST, 10, "4bit", recipe) == 1315 + 1800 + 11_280 + 5960


def test_working_bytes_match_hand_computed_values() -> None:
    """With a vocabulary of 1, the head takes less than a layer."""
    small = replace(SHAPE, vocabulary=1)
    recipe = vram.Recipe(32, 6, 0)
    layer = 10 * 2 * (4 * 8 + 3 * 20)
    assert vram.working_bytes(small, 10, recipe) == layer
    checkpointed = recipe._replace(checkpointing=True)
    assert vram.working_bytes(small, 10, checkpointed) == layer + 10 * (32 * 8 + 6 * 20)
    unpacked = recipe._replace(dequantised=True)
    assert vram.working_bytes(small, 10, unpacked) == layer + 2 * 8 * 20


def test_head_bytes_match_hand_computed_values() -> None:
    ours, float32_shape = vram.Recipe(32, 6, 0), vram.Recipe(32, 6, 12.5)
    assert vram.head_bytes(SHAPE, 10, float32_shape) == 10 * 50 * 12.5
    wide = replace(SHAPE, vocabulary=5000)
    assert vram.head_bytes(wide, 2000, ours) == 2000 * 8 * 12 + 1024 * 2048 * (8 + 2)


def test_recipe_of_float32_and_4bit_models() -> None:
    float32_shape = replace(SHAPE, width_bytes=4)
    assert vram.recipe_of(float32_shape, "full", True) == vram.Recipe(68, 12, 0, True, 16, False)
    assert vram.recipe_of(SHAPE, "4bit", False) == vram.Recipe(32, 6, 0, False, 18, True)


def test_queries_may_be_wider_than_the_hidden_vector() -> None:
    wide = replace(SHAPE, query_heads=6)  # 12 numbers
    recipe = vram.Recipe(32, 6, 0)
    assert vram.activation_bytes(wide, 10, recipe) == 10 * 3 * (32 * 12 + 6 * 20)
    assert vram.server_bytes(wide) == 8192 * 2 * (4 * 12 + 3 * 20) + 256 * 50 * 10
