"""An agent over MCP servers: those of mcp.json, and a loop. The judge scores, by rubric.md.

What a server does wrong (it does not start, dies, does not answer in time, breaks the protocol) leaves the attempt
unscored, with the reason. What the model does wrong (no such tool, arguments that do not fit) is told to the model.
"""

from pathlib import Path

import openai
from servers import Tools, first, read_servers

HERE = Path(__file__).parent
SYSTEM = (HERE / "system.md").read_text(encoding="utf-8").strip()
SERVERS = read_servers(HERE)
TURNS = 8


async def rollout(scenario, model):
    try:
        async with Tools(HERE, SERVERS) as tools:
            return await converse(scenario, model, tools)
    except BaseExceptionGroup as group:
        raise first(group) from None


async def converse(scenario, model, tools):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": scenario["input"]}]
    calls = wrong = 0
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        for _ in range(TURNS):
            answer = await client.chat.completions.create(
                model=model.name, messages=messages, tools=tools.offered
            )
            said = answer.choices[0].message
            messages.append(said)
            if not said.tool_calls:
                break
            for call in said.tool_calls:
                found, well = await tools.call(call.function.name, call.function.arguments)
                calls, wrong = calls + 1, wrong + (not well)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
    return {"metrics": {"tool_calls": calls, "wrong_calls": wrong}}
