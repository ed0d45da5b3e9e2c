"""Parts of one card, worked out by hand, and what the phases do with them."""

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


def test_weights_by_hand() -> None:
    assert vram.weight_bytes(SHAPE, REST, "full") == 2 * 1400
    assert vram.weight_bytes(SHAPE, REST, "8bit") == 2 * 400 + 1000 + 1000 // 8 * 4
    assert vram.weight_bytes(SHAPE, REST, "4bit") == 2 * 400 + int(1000 * 4.127 / 8)


def test_four_bits_of_eight_billion_are_as_the_paper_says() -> None:
    """Embedding and head stay in 16 bits: 2.1 GB of the 5.7."""
    assert vram.weight_bytes(LLAMA, LLAMA_8B.rest, "4bit") == pytest.approx(5.70e9, rel=0.01)


def test_activations_by_hand() -> None:
    ours = vram.recipe_of(SHAPE, "full", checkpointing=False)
    # 16 hidden and 3 intermediate vectors of 2 bytes
    assert vram.activation_bytes(SHAPE, 10, ours) == 10 * 3 * (32 * 8 + 6 * 20)
    again = vram.recipe_of(SHAPE, "full", checkpointing=True)
    assert vram.activation_bytes(SHAPE, 10, again) == 10 * 3 * 8 * 2
    # one layer computed again, and the gradients of 4 hidden and 3 intermediate vectors
    layer = 10 * (32 * 8 + 6 * 20) + 10 * 2 * (4 * 8 + 3 * 20)
    head = 10 * 8 * 12 + 10 * 50 * (8 + 2)
    assert vram.head_bytes(SHAPE, 10, again) == head
    assert vram.working_bytes(SHAPE, 10, again) == max(layer, head)


def test_vllm_profiles_itself_as_it_has_told() -> None:
    """pull request 10511 of vllm-project/vllm: Llama-3-8B, 1.26 GiB."""
    assert vram.server_bytes(LLAMA) == pytest.approx(1.26 * 2**30, rel=0.1)


def test_the_adapter_costs_weight_gradient_moments_and_its_cast() -> None:
    part = next(p for p in plan_of(Job(2048, 1024, 64)).parts if p.name == vram.ADAPTER)
    assert part.sampling == part.training == 18 * LLAMA.adapter


def test_phases_take_turns() -> None:
    job = Job(2048, 1024, 64, sampler="vllm", sleep="all")
    turns = plan_of(job)
    assert turns.peak == max(turns.sampling, turns.training) < turns.together
    both = plan_of(job._replace(overlaps=True))
    assert both.peak == both.sampling == both.training == both.together > turns.peak


def test_sleep_gives_back_what_it_says() -> None:
    job = Job(2048, 1024, 64, sampler="vllm")
    awake, cache, all_ = (plan_of(job._replace(sleep=s)) for s in ("off", "cache", "all"))
    kept = vram.cache_bytes(LLAMA, 64, 1024)
    assert awake.training - cache.training == kept
    served = vram.weight_bytes(LLAMA, LLAMA_8B.rest, "full") + vram.server_bytes(LLAMA)
    assert cache.training - all_.training == served
    assert awake.sampling == cache.sampling == all_.sampling


def test_the_cache_takes_what_is_left_and_never_less_than_one() -> None:
    job = Job(2048, 32_768, 256, sampler="vllm", sleep="all")
    small = plan_of(job, room=48 * 10**9)
    assert small.peak <= 48 * 10**9
    assert small.sampling == 48 * 10**9
    none = plan_of(job, room=20 * 10**9)
    assert none.bytes_of(vram.CACHE) == vram.cache_bytes(LLAMA, 1, 32_768)
    assert none.peak > 20 * 10**9


def test_a_share_that_somebody_sets_is_what_vllm_takes() -> None:
    job = Job(2048, 1024, 64, sampler="vllm", sleep="all", share_bytes=30 * 10**9)
    assert plan_of(job).bytes_of(*vram.OF_VLLM) == 30 * 10**9


def test_our_sampler_keeps_its_cache_while_the_trainer_works() -> None:
    made = plan_of(Job(2048, 1024, 64))
    cache = next(part for part in made.parts if part.name == vram.CACHE)
    assert cache.sampling == cache.training > 0
    assert next(part for part in made.parts if part.name == vram.PREFILL).training == 0


def test_a_card_that_only_trains_samples_nothing() -> None:
    made = plan_of(Job(2048, 1024, 0, sampler="vllm", peers=1))
    names = {part.name for part in made.parts}
    assert not names & {*vram.OF_VLLM, vram.COPIES, vram.PREFILL}
    programs = next(part for part in made.parts if part.name == vram.PROGRAMS)
    assert programs.sampling == vram.CONTEXT_BYTES + vram.NCCL_BYTES


@pytest.mark.parametrize(
    "more", [{"tokens": 4096}, {"context": 4096}, {"rows": 256}, {"sampler": "vllm"}]
)
def test_more_needs_more(more: dict[str, object]) -> None:
    job = Job(2048, 1024, 64)
    assert plan_of(job._replace(**more), ROOM).peak > plan_of(job, ROOM).peak  # type: ignore[arg-type]


def test_fewer_bits_need_less() -> None:
    job = Job(2048, 1024, 64, sampler="vllm", sleep="all")
    peaks = [plan_of(job._replace(storage=s)).peak for s in ("full", "8bit", "4bit")]
    assert peaks == sorted(peaks, reverse=True)
