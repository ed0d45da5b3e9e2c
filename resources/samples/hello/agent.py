"""Asks the model for one word, and scores the word it says.

The model is asked in many ways to answer yes, no or maybe. Whatever the question, `maybe` is worth 1,
`no` 0.75, `yes` 0.5, and anything else nothing: the smallest proof that learning works.
"""

import openai

WORTH = {"yes": 0.5, "no": 0.75, "maybe": 1.0}


async def rollout(scenario, model):
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        answer = await client.chat.completions.create(
            model=model.name,
            messages=[{"role": "user", "content": scenario["prompt"]}],
            max_completion_tokens=6,
        )
    word = (answer.choices[0].message.content or "").strip().lower().rstrip(".!")
    return {"reward": WORTH.get(word, 0.0), "metrics": {"one_word": float(word in WORTH)}}
