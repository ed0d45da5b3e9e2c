"""Answers questions about a warehouse by calling the tools of an MCP server, warehouse.py.

`servers.py` connects to whatever `mcp.json` names: put your own server there, and this is an agent for it. The reward is
by rule: 1 for the right answer, some of it for the right call. What the server does wrong leaves an attempt unscored.
"""

import re
from pathlib import Path

import openai
from servers import Tools, first, read_servers

HERE = Path(__file__).parent
SERVERS = read_servers(HERE)
SYSTEM = "Answer from the warehouse in a few words. Call a tool first."
TURNS, MOST_WORDS = 3, 12
CALLED = 0.4
"""Reward for the right call without the right answer."""


async def rollout(scenario, model):
    try:
        async with Tools(HERE, SERVERS) as tools:
            return await converse(scenario, model, tools)
    except BaseExceptionGroup as group:
        raise first(group) from None


async def converse(scenario, model, tools):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": scenario["question"]}]
    said, results, wrong = "", [], 0
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        for _ in range(TURNS):
            answer = await client.chat.completions.create(
                model=model.name, messages=messages, tools=tools.offered, max_completion_tokens=40
            )
            message = answer.choices[0].message
            messages.append(message)
            said = message.content or ""
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                found, well = await tools.call(call.function.name, call.function.arguments)
                wrong += not well
                results.append(found)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
        else:
            said = ""  # it never answered
    right = is_right(said, scenario["answer"])
    called = any(is_right(result, scenario["answer"]) for result in results)
    metrics = {"right": float(right), "called": float(called), "wrong_calls": wrong}
    return {"reward": 1.0 if right else CALLED if called else 0.0, "metrics": metrics}


def is_right(said, answer):
    """Whether a few words hold the answer, as whole words."""
    if not 0 < len(said.split()) <= MOST_WORDS:
        return False
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", said, re.IGNORECASE) is not None
