"""Answers one input by the words in system.md. The judge scores, by rubric.md."""

from pathlib import Path

import openai

SYSTEM = Path(__file__).with_name("system.md").read_text(encoding="utf-8").strip()


async def rollout(scenario, model):
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": scenario["input"]},
    ]
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        await client.chat.completions.create(model=model.name, messages=messages)
