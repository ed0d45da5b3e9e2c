"""LoRA on the experts of a mixture: function and gradients are those of PEFT's own layers, and
merged exports compute the same."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.export.torch.logprobs import load_exported, load_trained
from engine.export.torch.merge import BaseWeights, read_adapter, write_merged
from engine.export.torch.weights import check_merged
from engine.models.architectures import UNSTACKED, experts_problem, has_experts
from engine.models.file_checks import shape_counts
from engine.policy.base import AdamStep, Policy, PolicySpec, TrainBatch, TrainItem
from engine.policy.data_parallel import ParallelPolicy
from engine.policy.torch.model.experts import Groups, RoutedExperts, stacked
from engine.policy.torch.model.model import LoraModel
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import ModelError
from engine.runtime.closing import closing
from tests.engine.export.test_torch import CPU, QUIET
from tests.engine.policy.architectures import EXPERTS, ROWS, SHAPE, TREES
from tests.engine.policy.exactness import assert_exact, fill, loaded, saved_model, trained
from tests.engine.policy.test_data_parallel import moments
from tests.engine.policy.torch.test_architectures import sampled_group
from tests.support.engine_starter import forked_policy

ALL = TREES | ROWS
UNGATED = ROWS["nemotron_h"] | {
    "layers_block_type": ["attention", "moe"],
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
}
MIXTURES = [
    *(kind for kind, one in ALL.items() if has_experts(SHAPE | one) and kind not in UNSTACKED),
    "nemotron_h",
]
QUICK = ("qwen3_moe", "gpt_oss", "granitemoe", "mixtral", "nemotron_h")
"""Mixtures with each layout: files with a tensor for each expert, transposed weights with biases,
stacked ones with other names, other names of single experts, no gate."""
READS_PAST_ADAPTERS = ("jamba",)
"""Types whose code in transformers reads the weight of an adapted layer (`dt_proj`) past its
adapter, so that its merged weight has an effect that the adapter does not have."""
UNMAPPED = ("kimi_linear", "nemotron_h")
"""Types with other layers whose names in the files are not those in memory."""


def settings_of(kind: str) -> dict[str, Any]:
    return UNGATED if kind == "nemotron_h" else ALL[kind]


@pytest.mark.parametrize(
    "kind",
    [pytest.param(one, marks=[] if one in QUICK else [pytest.mark.long]) for one in MIXTURES],
)
def test_every_mixture_is_exact_and_exported(kind: str, tmp_path: Path) -> None:
    """Gradients and log-probs are those of PEFT; a saved adapter is loaded again, and the merged
    export computes the adapter's logits."""
    folder = saved_model(kind, settings_of(kind), tmp_path / "model")
    model = loaded(folder, adapt_experts=True)
    assert model.publish_gap() <= 1e-4
    base = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    adapter = tmp_path / "adapter"
    assert_exact(kind, model, base, sampled_group(model), adapter, most=2e-6)
    of_experts = [p.numel() for name, p in model.adapter.items() if ".experts." in name]
    assert sum(of_experts) == 4 * shape_counts(folder)["expert_sides"] > 0
    again = loaded(folder, adapt_experts=True)
    with torch.no_grad():
        for parameter in again.adapter.values():
            parameter.zero_()
    again.load_adapter(adapter)
    assert all(torch.equal(p, again.adapter[name]) for name, p in model.adapter.items())
    if kind in UNMAPPED:
        with pytest.raises(ModelError, match="does not exist in the base model's files"):
            exported_difference(folder, adapter, tmp_path / "merged")
    else:
        apart = exported_difference(folder, adapter, tmp_path / "merged")
        print(f"{kind}: merged logits differ by {apart:.1e}")
        assert apart <= (0.1 if kind in READS_PAST_ADAPTERS else 2e-6)


def exported_difference(folder: Path, adapter: Path, out: Path) -> float:
    """Relative difference of logits between the adapter, computed by PEFT, and its merged export,
    whose weights are all verified."""
    base = BaseWeights(folder)
    factors = read_adapter(adapter, base)
    out.mkdir()
    write_merged(base, factors, out, torch.float32, 2**40, QUIET)
    shutil.copy(folder / "config.json", out)
    checked = check_merged(base, factors, out, "float32", QUIET)
    assert checked.good
    assert checked.adapted == len(factors)
    tokens = torch.tensor([[3 + 7 * n * n % 250 for n in range(30)]])
    with torch.inference_mode():
        ours, theirs = (
            model(input_ids=tokens, use_cache=False).logits
            for model in (
                load_trained(folder, adapter, CPU),
                load_exported(out, "merged", folder, CPU),
            )
        )
    return float((ours - theirs).norm() / ours.norm())


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny Qwen3 mixture."""
    return saved_model("qwen3_moe", EXPERTS, tmp_path_factory.mktemp("mixture"))


def test_recomputed_layers_give_the_same_gradient(mixture: Path) -> None:
    models = [loaded(mixture, recompute=on, adapt_experts=True) for on in (False, True)]
    items = sampled_group(models[0])
    for model in models:
        assert trained(model, items) <= 1e-4
    for name, parameter in models[0].adapter.items():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, models[1].adapter[name].grad), name  # type: ignore[arg-type]


def test_an_expert_without_tokens_gets_no_gradient(tmp_path: Path) -> None:
    settings = EXPERTS | {"num_experts": 32, "num_local_experts": 32, "num_experts_per_tok": 1}
    model = loaded(saved_model("qwen3_moe", settings, tmp_path / "m"), adapt_experts=True)
    item = TrainItem(
        tokens=[5, 6, 7, 8], spans=[(2, 4)], logprobs=[-5.0, -5.0], advantages=[1.0, 1.0]
    )
    trained(model, [item])
    for name, parameter in model.adapter.items():
        if name.endswith("experts.lora_A.default.weight"):
            assert parameter.grad is not None
            of_experts = parameter.grad.view(32, -1).abs().sum(1)
            assert 0 < int((of_experts > 0).sum()) <= 4


def test_experts_in_bfloat16_are_those_in_float32_up_to_rounding(mixture: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    index_SK = torch.randint(4, (20, 2), generator=generator)
    weights_SK = torch.rand(20, 2, generator=generator)
    states_SH = torch.randn(20, 64, generator=generator)
    found = []
    for dtype in ("float32", "bfloat16"):
        model = loaded(mixture, dtype=dtype, adapt_experts=True)
        experts = next(one for one in model.trained.modules() if isinstance(one, RoutedExperts))
        x_SH = states_SH.to(model.dtype, copy=True).requires_grad_()
        y_SH = experts(x_SH, index_SK, weights_SK)
        assert y_SH.dtype == model.dtype
        y_SH.float().square().sum().backward()
        factors = [p for p in experts.parameters() if p.requires_grad]
        assert len(factors) == 4
        assert all(p.dtype == torch.float32 for p in factors)
        found.append([y_SH.float(), x_SH.grad, *(p.grad for p in factors)])
    for exact, coarse in zip(*found, strict=True):
        assert exact is not None
        assert coarse is not None
        assert (exact - coarse.float()).norm() <= 0.03 * exact.norm()


def test_grouped_products_are_those_of_single_experts() -> None:
    """The kernel for GPUs has a slow implementation on the CPU."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.tensor([3, 0, 5, 1])
    x_PI, slope_PO = (torch.randn(9, n, generator=generator).bfloat16() for n in (16, 24))
    weight_EOI = torch.randn(4, 24, 16, generator=generator).bfloat16()
    single = Groups(counts, x_PI, weight_EOI, weight_EOI)
    grouped = Groups(counts, x_PI, weight_EOI, weight_EOI)
    grouped._grouped, grouped._ends_E = True, counts.cumsum(0, dtype=torch.int32)
    for weight in (weight_EOI, weight_EOI.transpose(1, 2).contiguous().transpose(1, 2)):
        torch.testing.assert_close(grouped.times(x_PI, weight), single.times(x_PI, weight))
    torch.testing.assert_close(grouped.outer(slope_PO, x_PI), single.outer(slope_PO, x_PI))
    assert not grouped.outer(slope_PO, x_PI)[1].any()


def test_two_processes_train_the_experts_as_one_does(mixture: Path, tmp_path: Path) -> None:
    model = ModelConfig(dtype="float32", rank=4, alpha=8, adapt_experts=True)
    spec = PolicySpec(model_path=str(mixture), model=model, seed=3, batch_tokens=64)
    items = [
        TrainItem(
            tokens=[1, 70, 71, *range(20 + n % 3, 30 + 2 * n)],
            spans=[(3, 9)],
            logprobs=[-5.5 + 0.01 * n] * 6,
            advantages=[(-1.0) ** n * (1 + n / 10)] * 6,
        )
        for n in range(5)
    ]
    batch = TrainBatch(items=items, normaliser=30)

    async def work() -> None:
        log = tmp_path / "log"
        async with (
            forked_policy(log) as one,
            closing(await ParallelPolicy.start(log, "tiny", 2)) as two,
        ):
            policies: list[Policy] = [one, two]
            infos = await asyncio.gather(*(policy.load(spec) for policy in policies))
            assert [(i.adapted_experts, i.frozen_experts) for i in infos] == [(True, False)] * 2
            for number, policy in enumerate(policies):
                for _ in range(2):  # B is 0 in the first step, and A gets no gradient
                    await policy.forward_backward(batch)
                    await policy.optim_step(AdamStep(lr=1e-2, max_grad_norm=1e9))
                (tmp_path / str(number)).mkdir()
                await policy.save(tmp_path / str(number))
                assert (await policy.publish(1))["publish_gap"] <= 1e-4

    asyncio.run(work())
    first, second = (moments(tmp_path / str(number)) for number in range(2))
    assert any("experts" in name for name in first)
    assert all((first[name] - second[name]).abs().max() <= 1e-6 for name in first)  # type: ignore[attr-defined]


def test_models_without_stacked_experts_are_refused(tmp_path: Path) -> None:
    for kind in ("llama", "aria_text"):
        folder = saved_model(kind, ALL[kind], tmp_path / kind)
        with pytest.raises(ModelError, match=r"model\.adapt_experts is on, but"):
            loaded(folder, adapt_experts=True)
        problem = experts_problem(AutoConfig.from_pretrained(folder).to_dict(), kind)
        assert problem is not None
        assert problem.where == "model.adapt_experts"


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # gpt_bigcode
def test_types_without_stacked_experts_are_listed() -> None:
    for kind, settings in ALL.items():
        config = AutoConfig.for_model(kind, **(SHAPE | settings))
        with torch.device("meta"):
            found = bool(stacked(AutoModelForCausalLM.from_config(config)))
        listed = has_experts(SHAPE | settings) and kind not in UNSTACKED
        assert found == listed, kind


def test_without_the_setting_experts_have_no_adapter(mixture: Path) -> None:
    model = loaded(mixture)
    assert isinstance(model, LoraModel)
    assert not any("experts" in name for name in model.adapter)
    assert not any(isinstance(part, RoutedExperts) for part in model.trained.modules())
    fill(model)
