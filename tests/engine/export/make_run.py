"""Build a run folder with one checkpoint by hand: a real store, real PEFT files, no training."""

import asyncio
import time
from pathlib import Path

from engine.protocol.config.project import JudgeConfig, ModelConfig, ProjectConfig, TrainConfig
from engine.protocol.events.run import StepFinished, ValidationFinished
from engine.protocol.records.conversations import Branch, Message
from engine.protocol.records.runs import Interval, RunSpec, Split, Trajectory
from engine.rollout.rendering.chat import ChatFormat
from engine.storage.checkpoints import checkpoint
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.run import DATABASE, write_spec

RUBRIC = "Short answers are better.\n"
RUN_ID = "01JTESTEXPORT0000000000000"
ANSWER = "This is what a sampled answer could look like, about whatever it was that was asked."


def make_run(
    folder: Path, model: Path, name: str = "", scale: float = 0.02, count: int = 8, step: int = 3
) -> Path:
    """Run of `model` with an adapter (normal B of deviation `scale`) and `count` trajectories."""
    run = folder / "runs" / RUN_ID
    run.mkdir(parents=True)
    spec = RunSpec(
        id=RUN_ID,
        name="amber-crane",
        project="letters",
        started_at=time.time(),
        model_path=str(model),
        rubric=RUBRIC,
        versions={"atelier": "0.1.0"},
        config=ProjectConfig(
            name="letters",
            model=ModelConfig(name=name or str(model), dtype="float32", rank=4, alpha=8),
            train=TrainConfig(max_tokens=16, seed=7),
            judge=JudgeConfig(enabled=True, models=("openai/gpt-5.4",)),
        ),
    )
    write_spec(run, spec)
    with ChatFormat(model) as chat:
        asyncio.run(_fill(run, chat, _PolicyStub(model, scale), count, step))
    return run


class _PolicyStub:
    """Policy stub that saves one adapter."""

    def __init__(self, model: Path, scale: float) -> None:
        self.model, self.scale = model, scale

    async def save(self, folder: Path) -> None:
        save_adapter(self.model, folder / "adapter", self.scale)
        (folder / "trainer").mkdir()


def save_adapter(model: Path, folder: Path, scale: float) -> None:
    """Save a LoRA of rank 4, α 8 on all linear layers, determined by `scale`."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    torch.manual_seed(1)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = get_peft_model(base, config)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=scale)
    adapted.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)


async def _fill(run: Path, chat: ChatFormat, policy: _PolicyStub, count: int, step: int) -> None:
    writer = RunWriter(run / DATABASE, RUN_ID)
    try:
        for number in range(count):
            await writer.add_trajectory(_trajectory(chat, number))
        for step_ in range(1, step + 1):
            await writer.say(StepFinished(step=step_, metrics={"reward/mean": step_ / 10}))
        for step_, mean in ((0, 0.2), (step, 0.5)):
            reward = Interval(mean=mean, low=mean - 0.1, high=mean + 0.1, count=4)
            await writer.say(
                ValidationFinished(step=step_, reward=reward, scenarios={}, unscored=0, seconds=1)
            )
        saved = await checkpoint.save(run, step, policy, {}, {})  # type: ignore[arg-type]
        await writer.add_checkpoint(saved)
    finally:
        writer.close()


def _trajectory(chat: ChatFormat, number: int) -> Trajectory:
    split: Split = "validation" if number % 2 else "train"
    prompt_text = f"Say something about the number {number}, please."
    prompt = chat.encode(chat.render([{"role": "user", "content": prompt_text}], []))
    completion = chat.encode(ANSWER[number % 7 :])
    return Trajectory(
        id=f"t{number:04d}",
        split=split,
        step=1,
        group=number,
        index=0,
        scenario_id=f"s{number}",
        title=f"Number {number}",
        reward=0.5,
        messages=[Message(role="user", content=prompt_text)],
        branches=[
            Branch(
                tokens=prompt + completion,
                spans=[(len(prompt), len(prompt) + len(completion))],
                logprobs=[-1.0] * len(completion),
            )
        ],
    )
