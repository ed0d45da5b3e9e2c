"""The same agent with a tool trains on the real architecture and chat template of each family."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.client import EngineClient
from engine.protocol.events.run import LogWritten, StepFinished
from engine.protocol.problems import Refused
from engine.protocol.requests.exports import ExportCheckpoint, ExportReport
from engine.protocol.requests.runs import TrajectoryQuery
from tests.engine.policy.architectures import ROWS, SHAPE, TREES
from tests.engine_http.conftest import Engine, make_project
from tests.support.families import FAMILIES, make_family

AGENT = """
import json

import openai

TOOL = {"type": "function", "function": {"name": "guess", "parameters": {
    "type": "object",
    "properties": {"number": {"enum": [1, 2, 3, 4]}},
    "required": ["number"],
}}}


async def rollout(scenario, model):
    client = openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key)
    messages = [{"role": "user", "content": "Guess a number."}]
    total = 0
    for turn in range(3):
        answer = await client.chat.completions.create(
            model=model.name, messages=messages, tools=[TOOL], tool_choice="required",
            parallel_tool_calls=False,
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            number = json.loads(call.function.arguments)["number"]
            total += number
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": f"{number} is too low"}
            )
        if not message.tool_calls:
            break
    return {"reward": total / 12, "metrics": {"turns": turn + 1}}
"""
MODELS = {
    "Qwen2.5": "qwen2",
    "Qwen3": "qwen3",
    "Qwen3 Instruct 2507": "qwen3_moe",
    "Qwen3.5": "qwen3_5_text",
    "Qwen3.6": "qwen3_5_moe_text",
    "Llama 3.1": "llama",
    "gpt-oss": "gpt_oss",
    "Llama 3.2": "glm4_moe",
    "DeepSeek V3": "deepseek_v3",
    "Nemotron 3": "nemotron_h",
    "Qwen3.8": "qwen3_next",
}
"""Type of the model in transformers, by the title of its family."""


def make_model(title: str, folder: Path, kind: str = "") -> Path:
    """Write a tiny random model of a family with its chat format; `kind` is its type in
    transformers, that of the family if empty. A bias of the output layer is not
    needed, since the structure of a required tool call leaves few tokens to choose from."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoConfig, AutoModelForCausalLM

    family, kind = FAMILIES[title], kind or MODELS[title]
    make_family(family, folder)
    stops = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    size = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    settings: dict[str, Any] = {**SHAPE, **(TREES | ROWS)[kind], "vocab_size": size}
    settings |= {"eos_token_id": stops, "pad_token_id": stops[0], "bos_token_id": stops[0]}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings))
    with torch.no_grad():  # far from uniform, so that siblings differ
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(2)
    model.generation_config.eos_token_id = stops
    model.save_pretrained(folder)
    return folder


@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize("title", MODELS)
def test_agent_with_a_tool_trains_on_each_family(
    engine: Engine, workspace: Path, tmp_path: Path, title: str
) -> None:
    """Three turns with a required tool call: two steps update the adapter, the sampler's log-probs
    equal the trainer's, and a rollout stays one branch where the template keeps what it shows."""
    project = make_project(workspace / "guess", make_model(title, tmp_path / "model"), AGENT)
    run = engine.train(
        project,
        **{
            "model.max_context": 4096, "model.thinking": "off", "model.keep_reasoning": "always",
            "train.max_tokens": 1000, "train.steps": 2, "train.validate_every": 0,
            "agent.timeout_s": 600,
        },
    )  # fmt: skip
    events = engine.wait(run, 850)

    async def read(client: EngineClient) -> list[Any]:
        page = await client.trajectories(run.id, TrajectoryQuery(split="train"))
        return [await client.trajectory(run.id, one.id) for one in page.items]

    trajectories = engine.call(read)
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert [step.step for step in steps] == [1, 2]
    for step in steps:
        assert step.metrics.get("grad_norm", 0) > 0, [one.problem for one in trajectories]
        assert step.metrics["logprob_gap/max"] <= 1e-4

    called = [one for one in trajectories if any(m.tool_calls for m in one.messages)]
    reasons = {branch.reason for one in called for branch in one.branches[1:]}
    gap = max(step.metrics["logprob_gap/max"] for step in steps)
    print(f"{title}: {len(called)} of {len(trajectories)} called, gap {gap:.1e}, {reasons}")
    assert len(called) >= len(trajectories) // 2
    assert all(branch.grammars for one in called for branch in one.branches)
    if title != "DeepSeek V3":  # its template shows neither reasoning nor words beside a call
        assert reasons == set()


EXPERTS = {"model.adapt_experts": True, "train.steps": 2, "train.validate_every": 0}


def test_experts_of_a_mixture_are_trained_and_exported(
    engine: Engine, workspace: Path, tmp_path: Path
) -> None:
    """Two steps with LoRA on the experts: the sampler's log-probs equal the trainer's, and the
    exported files compute the trained model's."""
    model = make_model("Qwen3 Instruct 2507", tmp_path / "model")
    run = engine.train(make_project(workspace / "experts", model), **EXPERTS)
    events = engine.wait(run, 300)
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert [step.step for step in steps] == [1, 2]
    for step in steps:
        assert step.metrics.get("grad_norm", 0) > 0
        assert step.metrics["logprob_gap/max"] <= 1e-4
    logs = [event.text for event in events if isinstance(event, LogWritten)]
    assert any("the routed experts of this mixture" in text for text in logs)
    for kind in ("merged", "adapter"):
        out = tmp_path / kind
        request = ExportCheckpoint(format=kind, out=str(out), prompts=4)

        async def export(client: EngineClient, request: ExportCheckpoint = request) -> Any:
            return [one async for one in client.export(run.id, 2, request)][-1]

        report = engine.call(export)
        assert isinstance(report, ExportReport)
        assert report.parity.verdict == "equal", report.parity.failures
        assert "on attention layers and routed experts" in (out / "README.md").read_text()
    assert [one.tool for one in report.commands] == ["Atelier"]
    config = json.loads((out / "adapter_config.json").read_text())
    assert all("mlp.experts" in name for name in config["target_parameters"])


def test_experts_of_a_dense_model_are_refused_before_a_run(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    project = make_project(workspace / "dense", tiny_model)
    with pytest.raises(Refused, match=r"model\.adapt_experts is on, but .* is not a mixture"):
        engine.train(project, **EXPERTS)
    assert not list(project.glob("runs/*"))
