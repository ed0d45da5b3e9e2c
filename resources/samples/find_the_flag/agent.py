"""Walks to a flag: every turn says where the flag lies, the model answers with a step.

A scenario is where the flag stands, in steps to the right and up, and the walls that stand in the
way. There are as many turns as the shortest way has steps, so every wrong word costs one. The
reward is the share of the way that was made.
"""

import openai

STEPS = {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0)}
QUESTION = "Answer with one word: up, down, left or right."


async def rollout(scenario, model):
    right, up = scenario["flag"]
    away = abs(right) + abs(up)
    steps = 0
    messages = []
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        for _ in range(away):
            messages.append({"role": "user", "content": describe(right, up)})
            answer = await client.chat.completions.create(
                model=model.name, messages=messages, max_completion_tokens=3
            )
            said = answer.choices[0].message.content or ""
            messages.append({"role": "assistant", "content": said})
            step = STEPS.get(said.strip().lower().rstrip("."))
            if step is not None:
                steps += 1
                right, up = right - step[0], up - step[1]
    left = abs(right) + abs(up)
    return {
        "reward": max(0.0, (away - left) / away),
        "metrics": {"reached": float(left == 0), "steps": steps / away},
    }


def describe(right, up):
    """Where the flag lies, and what to say."""
    parts = [
        f"{abs(count)} {more if count > 0 else less}"
        for count, more, less in ((up, "up", "down"), (right, "right", "left"))
        if count
    ]
    return f"The flag is {' and '.join(parts) or 'here'}. {QUESTION}"
