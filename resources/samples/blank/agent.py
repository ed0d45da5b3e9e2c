"""Your agent: any loop, any tools. It needs nothing but the address and the key it is given."""

import openai


async def rollout(scenario, model):
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        answer = await client.chat.completions.create(
            model=model.name,
            messages=[{"role": "user", "content": scenario["question"]}],
        )
    said = answer.choices[0].message.content or ""
    return {"reward": float(scenario["answer"].lower() in said.lower())}
