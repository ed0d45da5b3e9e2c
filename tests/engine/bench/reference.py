"""Compute TRL's and ART's own losses and advantages on given tensors. Run by the Python of the
benchmark environment.

stdin: one JSON list of cases; stdout: a list of results: loss and gradient by log-prob, or the
advantages.
"""

import ast
import importlib.metadata
import inspect
import json
import math
import sys
import textwrap
import types
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def main() -> None:
    answers = []
    for case in json.loads(sys.stdin.read()):
        if "rewards" in case:
            answers.append(trl_advantages(**case))
            continue
        tensors = {name: torch.tensor(value) for name, value in case["tensors"].items()}
        tensors["logprobs"] = tensors["logprobs"].double().requires_grad_()
        loss = {"trl": trl_loss, "art": art_loss}[case["library"]](tensors, case["settings"])
        loss.backward()
        gradient = tensors["logprobs"].grad
        assert gradient is not None
        answers.append({"loss": loss.item(), "gradient": gradient.tolist()})
    print(json.dumps(answers))


def trl_advantages(
    trainer: str, scale_rewards: str, rewards: list[float | None], size: int
) -> list[float]:
    """Advantages by the statements of `_generate_and_score_completions`."""
    from trl import GRPOTrainer, RLOOTrainer
    from trl.trainer.utils import nanstd

    kind = {"grpo": GRPOTrainer, "rloo": RLOOTrainer}[trainer]
    source = textwrap.dedent(inspect.getsource(kind._generate_and_score_completions))
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    words = [ast.unparse(statement) for statement in function.body]
    first = next(i for i, w in enumerate(words) if w.startswith("unscorable_mask ="))
    last = next(i for i, w in enumerate(words) if w.startswith("advantages = torch.nan_to_num"))
    values = [math.nan if reward is None else reward for reward in rewards]
    device = torch.device("cpu")
    names: dict[str, Any] = {
        "torch": torch,
        "nanstd": nanstd,
        "device": device,
        "num_generations": size,
        "rewards_per_func": torch.tensor(values, dtype=torch.double)[:, None],
        "self": types.SimpleNamespace(
            multi_objective_aggregation="sum_then_normalize",
            scale_rewards=scale_rewards,
            reward_weights=torch.ones(1, dtype=torch.double),
            reward_clip_range=None,
            beta=0.0,
            normalize_advantages=False,
        ),
    }
    exec("\n".join(words[first : last + 1]), names)  # run the reference code
    result: list[float] = names["advantages"].tolist()
    return result


def trl_loss(tensors: dict[str, Tensor], settings: dict[str, Any]) -> Tensor:
    """Loss by `GRPOTrainer._compute_loss`, with its surroundings set to one process."""
    from trl import GRPOTrainer

    mask = tensors["mask"]
    logprobs = tensors["logprobs"]

    class Trainer:
        _compute_loss = GRPOTrainer._compute_loss
        get_off_policy_mask = staticmethod(GRPOTrainer.get_off_policy_mask)

        def _get_per_token_logps_and_entropies(self, *_: Any, **__: Any) -> Any:
            return logprobs, torch.zeros_like(logprobs), None

    trainer = Trainer()
    defaults = {
        "beta": 0.0,
        "epsilon_low": 0.2,
        "epsilon_high": 0.28,
        "importance_sampling_level": "token",
        "loss_type": "dapo",
        "off_policy_mask_threshold": None,
        "top_entropy_quantile": 1.0,
        "use_vllm": "correction" in tensors,
        "vllm_importance_sampling_correction": True,
        "aux_loss_enabled": False,
        "_entropy_bonus_enabled": False,
        "current_gradient_accumulation_steps": 1,
        "max_completion_length": settings.get("max_completion_length", 16),
    }
    vars(trainer).update(defaults | settings)
    trainer.args = types.SimpleNamespace(  # type: ignore[attr-defined]
        delta=None, use_bias_correction_kl=False, steps_per_generation=1
    )
    trainer.model = types.SimpleNamespace(training=True)  # type: ignore[attr-defined]
    trainer.accelerator = types.SimpleNamespace(  # type: ignore[attr-defined]
        num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x
    )
    trainer._metrics = defaultdict(lambda: defaultdict(list))  # type: ignore[attr-defined]
    empty = torch.zeros(len(mask), 0, dtype=torch.long)
    inputs = {
        "prompt_ids": empty,
        "prompt_mask": empty,
        "completion_ids": torch.zeros_like(mask, dtype=torch.long),
        "completion_mask": mask.double(),
        "advantages": tensors["advantages"].double(),
        "old_per_token_logps": tensors["old"].double(),
        "ref_per_token_logps": tensors["reference"].double(),
        "num_items_in_batch": mask.sum(),
    }
    if "correction" in tensors:
        inputs["importance_sampling_ratio"] = tensors["correction"].double()
    loss: Tensor = trainer._compute_loss(None, inputs)
    return loss


def art_loss(tensors: dict[str, Tensor], settings: dict[str, Any]) -> Tensor:
    """Loss by `art.loss.loss_fn` on one packed row; only its module is loaded."""
    files = importlib.metadata.files("openpipe-art") or []
    init = next(file for file in files if str(file) == "art/__init__.py")
    home = Path(str(init.locate())).parent
    for name, folder in {
        "art": home,
        "art.utils": home / "utils",
        "art.dev": home / "none",
    }.items():
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    sys.modules["art.dev"].TrainConfig = dict  # type: ignore[attr-defined]
    sys.modules["art"].dev = sys.modules["art.dev"]  # type: ignore[attr-defined]
    from art.loss import loss_fn  # type: ignore[import-not-found]

    def shift_right(row: Tensor, pad: float) -> Tensor:
        """Shift a row by one: ART stores the values of a token one position later."""
        first = torch.full((1, 1), pad, dtype=row.dtype)
        return torch.cat([first, row], 1)

    logprobs = torch.cat([tensors["logprobs"], torch.zeros(1, 1, dtype=torch.double)], 1)
    inputs = {
        "logprobs": shift_right(tensors["old"].double(), float("nan")),
        "advantages": shift_right(tensors["advantages"].double(), 0.0),
        "assistant_mask": shift_right(tensors["mask"], 0).bool(),
        "weights": shift_right(tensors["weights"].double(), 0.0),
        "group_ids": shift_right(tensors["sequences"], 0),
    }
    reference = None
    if "reference" in tensors:
        reference = torch.cat([tensors["reference"].double(), torch.zeros(1, 1)], 1)
    loss: Tensor = loss_fn(inputs, logprobs, reference, None, settings).policy_loss
    return loss


if __name__ == "__main__":
    main()
