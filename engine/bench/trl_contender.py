"""TRL's GRPOTrainer in a benchmark. Run by the Python of the benchmark environment, not imported.

The first line of stdin is the job; each later line starts one optimizer step, which answers with
one line of JSON. The trainer runs its own loop and only waits between steps.
"""

import json
import os
import resource
import sys
import time
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

OUT = os.fdopen(os.dup(1), "w", buffering=1)


def main() -> None:
    job = json.loads(sys.stdin.readline())
    os.dup2(2, 1)  # what libraries print does not mix with the answers
    torch.set_num_threads(job["threads"])
    trainer = Timed.of(job)
    assert (trainer.accelerator.device.type == "cuda") == job["card"], "not on the same device"
    say({"ready": True, "parameters_dtype": str(next(trainer.model.parameters()).dtype)})
    trainer.train()


class Timed(GRPOTrainer):  # type: ignore[misc]
    """Trainer that measures the time to generate and prepare; the rest of a step is the update."""

    prepared_s = 0.0

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        start_s = time.perf_counter()
        inputs = super()._prepare_inputs(generation_batch)
        self.prepared_s += time.perf_counter() - start_s
        return inputs

    @classmethod
    def of(cls, job: dict[str, Any]) -> "Timed":
        dtype = getattr(torch, job["dtype"])
        best = job["variant"] == "best"
        weights = dtype if best else torch.float32  # what TRL loads when it is not told
        base = AutoModelForCausalLM.from_pretrained(
            job["model"], dtype=weights, attn_implementation="sdpa"
        )
        model = PeftModel.from_pretrained(base, job["adapter"], is_trainable=True)
        tokenizer = AutoTokenizer.from_pretrained(job["model"])
        attempts = job["attempts"]
        texts = [tokenizer.decode(prompt) for prompt in job["prompts"]]
        rows = [{"prompt": text, "number": n} for n, text in enumerate(texts)]
        callback = Held(job)
        trainer = cls(
            model=model,
            reward_funcs=_reward(attempts),
            args=_settings(job, best),
            train_dataset=_dataset(rows * job["steps"]),
            processing_class=tokenizer,
            rollout_func=_stored(attempts, len(texts)) if attempts else None,
            callbacks=[callback],
        )
        callback.trainer = trainer
        return trainer


class Held(TrainerCallback):  # type: ignore[misc]
    """Callback that waits for a line before every step and reports the step afterwards."""

    trainer: Timed

    def __init__(self, job: dict[str, Any]) -> None:
        self._gradient = job["gradient"]
        self._start_s = 0.0
        self._processor = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if not sys.stdin.readline():
            os._exit(0)
        self.trainer.prepared_s = 0.0
        self._start_s, self._processor = time.perf_counter(), time.process_time()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        if self._gradient:
            # told apart from the step's time: writing them is the benchmark's, not the trainer's
            start_s = time.perf_counter()
            named = self.trainer.model.named_parameters()
            save_file(
                {n: p.grad.float().contiguous() for n, p in named if p.grad is not None},
                self._gradient,
            )
            self._gradient = None
            self._start_s += time.perf_counter() - start_s

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds = time.perf_counter() - self._start_s
        say(
            {
                "seconds": seconds,
                "sample_s": self.trainer.prepared_s,
                "update_s": seconds - self.trainer.prepared_s,
                "processor_s": time.process_time() - self._processor,
                "peak_bytes": _peak_bytes(),
            }
        )


def _settings(job: dict[str, Any], best: bool) -> GRPOConfig:
    count = len(job["prompts"]) * job["group"]
    chosen: dict[str, Any] = {}
    if best:
        chosen = {
            "bf16": job["dtype"] == "bfloat16",
            "gradient_checkpointing": False,
            "dataloader_pin_memory": False,
        }
    forced: dict[str, Any] = {"min_new_tokens": job["completion"]}
    if job["vllm_share"]:
        forced = {"min_tokens": job["completion"]}  # as vLLM calls it
        chosen |= {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_gpu_memory_utilization": job["vllm_share"],
            "vllm_max_model_length": max(map(len, job["prompts"])) + job["completion"],
        }
    return GRPOConfig(
        output_dir=job["scratch"],
        use_cpu=not job["card"],
        per_device_train_batch_size=count,
        gradient_accumulation_steps=1,
        num_generations=job["group"],
        max_completion_length=job["completion"],
        generation_kwargs=forced,
        temperature=1.0,
        top_k=0,
        beta=0.0,
        loss_type="dapo",
        scale_rewards="none",
        epsilon_high=0.28,
        learning_rate=job["lr"],
        lr_scheduler_type="constant",
        max_grad_norm=job["max_grad_norm"],
        max_steps=job["steps"],
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        shuffle_dataset=False,
        seed=0,
        **chosen,
    )


def _peak_bytes() -> int:
    """Peak memory of the GPU as torch counts it, else of the process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _dataset(rows: list[dict[str, Any]]) -> Any:
    from datasets import Dataset

    return Dataset.from_list(rows)


def _stored(attempts: list[dict[str, Any]], groups: int) -> Any:
    """Return a rollout function that gives stored trajectories, in the trainer's order."""

    def roll_out(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        assert len(prompts) == len(attempts)
        return {
            "prompt_ids": [a["prompt"] for a in attempts],
            "completion_ids": [a["completion"] for a in attempts],
            "logprobs": [a["logprobs"] for a in attempts],
            "env_mask": [a["mask"] for a in attempts],
            "reward": [a["reward"] for a in attempts],
        }

    return roll_out


def _reward(attempts: list[dict[str, Any]]) -> Any:
    def reward(completions: list[Any], **columns: Any) -> list[float]:
        if attempts:
            return [float(value) for value in columns["reward"]]
        return [(sum(map(ord, str(text)))) % 97 / 97 for text in completions]

    return reward


def say(answer: dict[str, Any]) -> None:
    OUT.write(json.dumps(answer) + "\n")
    OUT.flush()


if __name__ == "__main__":
    main()
