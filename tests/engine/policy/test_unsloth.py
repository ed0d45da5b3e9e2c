"""Unsloth's trainer in its own environment on the CPU: gradients equal the torch policy's,
segments are respected, and its import path is isolated."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from engine.environments import python_of
from engine.policy.base import Policy, PolicySpec, ScoreBatch
from engine.policy.worker import TorchPolicy, unsloth_program
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import AtelierError
from engine.runtime.paths import ISOLATED
from tests.engine.policy.test_data_parallel import STEADY, batch, gradient, moments

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]
IMPORT_ENGINE = (
    "import runpy, sys; runpy.run_path(sys.argv[1], run_name='alone')['import_engine']()"
)
TRIALS = Path(__file__).parent / "unsloth_trials.py"


@pytest.fixture(scope="module")
def unsloth() -> Path:
    """Python of Unsloth's environment, installed once into the user's cache."""
    return python_of("unsloth-cpu")


def spec(model: Path, **fields: object) -> PolicySpec:
    defaults = {
        "model_path": str(model), "model": ModelConfig(dtype="float32", rank=4, alpha=8), "seed": 3,
        "batch_tokens": 64,
    }  # fmt: skip
    return PolicySpec.model_validate(defaults | fields)


def test_unsloth_gradients_equal_the_torch_policy(
    unsloth: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """Same adapter and prefix tree: equal to float32 rounding."""

    async def work() -> None:
        log = tmp_path / "log"
        policies: list[Policy] = [
            await TorchPolicy.start(log, "tiny"),
            await TorchPolicy.start(log, "tiny", program=await unsloth_program(cuda=False)),
        ]
        try:
            infos = await asyncio.gather(*(p.load(spec(tiny_model)) for p in policies))
            assert [info.shares_prefixes for info in infos] == [True, True]
            assert infos[0].trainable == infos[1].trainable
            await policies[0].save_adapter(tmp_path / "same")
            await policies[1].load_adapter(tmp_path / "same")
            metrics = [
                await gradient(policy, tmp_path / str(n), batch())
                for n, policy in enumerate(policies)
            ]
            one, two = (moments(tmp_path / str(n)) for n in range(2))
            gap = max(10 * float((one[name] - two[name]).abs().max()) for name in one)
            print(f"largest gradient difference {gap:.1e}")
            assert gap <= 1e-6
            expected = {
                name: pytest.approx(metrics[0][name], rel=1e-4, abs=1e-6) for name in STEADY
            }
            assert {name: metrics[1][name] for name in STEADY} == expected
            assert metrics[1]["publish_gap"] <= 1e-4
            scores = [await policy.score(ScoreBatch(items=batch().items)) for policy in policies]
            for torch_scores, unsloth_scores in zip(*scores, strict=True):
                assert torch_scores.logprobs == pytest.approx(unsloth_scores.logprobs, abs=1e-5)
        finally:
            await asyncio.gather(*(policy.close() for policy in policies))

    asyncio.run(work())


def test_segment_blind_attention_is_restored_or_rejected(unsloth: Path, tiny_model: Path) -> None:
    """The test patches what Unsloth patches on a GPU."""
    run_trials = "; sys.argv = sys.argv[2:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [
        str(unsloth),
        "-P",
        "-c",
        IMPORT_ENGINE + run_trials,
        str(ISOLATED),
        str(TRIALS),
        str(tiny_model),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "patched": "model.segments_unseen",
        "restored": "seen",
        "attention": True,
        "rotary": True,
    }


def test_unsloth_cannot_import_the_studio(unsloth: Path) -> None:
    print_origins = (
        "import importlib.util, engine; print(importlib.util.find_spec('studio').origin)"
    )
    command = [
        str(unsloth),
        "-P",
        "-c",
        f"{IMPORT_ENGINE}; {print_origins}; print(engine.__file__)",
        str(ISOLATED),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    studio, engine = done.stdout.split()
    assert str(ROOT) not in studio
    assert engine == str(ROOT / "engine" / "__init__.py")


def test_8bit_weights_on_cpu_are_rejected(unsloth: Path, tiny_model: Path, tmp_path: Path) -> None:
    """Unsloth itself would silently fall back to 16 bits."""

    async def work() -> None:
        program = await unsloth_program(cuda=False)
        policy = await TorchPolicy.start(tmp_path / "log", "tiny", program=program)
        try:
            with pytest.raises(AtelierError, match="to 8 bits on this machine"):
                await policy.load(spec(tiny_model, weights="8bit"))
        finally:
            await policy.close()

    asyncio.run(work())
