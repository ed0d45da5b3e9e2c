"""Turns a question into SQL. The query is executed, and its rows are compared with those of the right one.

The reward is 1 for the same rows, whatever the query looks like; a little for a query that SQLite takes, and a little
more for one with the right number of columns and some right values.
"""

import openai
from shop import SCHEMA, run

SYSTEM = f"Write one SQLite query. Tables:\n{SCHEMA}"
TAKEN, NEAR = 0.1, 0.3


async def rollout(scenario, model):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": scenario["question"]}]
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        answer = await client.chat.completions.create(
            model=model.name, messages=messages, max_completion_tokens=64
        )
    return judge(scenario["sql"], answer.choices[0].message.content or "")


def judge(right, said):
    wanted, found = run(right), run(said)
    if found is None or not said.strip():
        return {"reward": 0.0, "metrics": {"taken": 0.0, "right": 0.0}}
    same = found == wanted
    return {
        "reward": 1.0 if same else NEAR if near(wanted, found) else TAKEN,
        "metrics": {"taken": 1.0, "right": float(same)},
    }


def near(wanted, found):
    """Some of the right values, in rows of the right width."""
    if not wanted or not found or len(wanted[0]) != len(found[0]):
        return False
    return bool({value for row in wanted for value in row} & {value for row in found for value in row})
