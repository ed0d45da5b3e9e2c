"""Answers a question from an inbox, with two tools: search_inbox and read_mail.

The reward is by rule: 1 for the right answer in a few words, read in the right mail; less for having had that mail open, or
listed, and answering wrong. Attempts of a group so differ even while nobody answers right.
"""

import json

import openai
from inbox import inbox, is_right, read, search

SYSTEM = "Answer from the inbox: search, read one mail, then answer in a few words."
TURNS = 4
READ, LISTED = 0.4, 0.15
"""Rewards for the right mail opened, or listed, without a right answer."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search_inbox",
            "description": "The three mails that fit best.",
            "parameters": {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "read_mail",
            "description": "The text of a mail.",
            "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        },
    },
]


async def rollout(scenario, model):
    database = inbox()
    seen = {"listed": [], "read": []}
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": scenario["question"]}]
    said = ""
    try:
        async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
            for _ in range(TURNS):
                answer = await client.chat.completions.create(
                    model=model.name, messages=messages, tools=TOOLS, max_completion_tokens=48
                )
                message = answer.choices[0].message
                messages.append(message)
                said = message.content or ""
                if not message.tool_calls:
                    break
                for call in message.tool_calls:
                    found = run(database, call.function, seen)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
            else:
                said = ""  # it never answered
    finally:
        database.close()
    return judge(scenario, said, seen)


def run(database, function, seen):
    """What a tool says to the model; what does not fit is said too."""
    try:
        arguments = json.loads(function.arguments)
        if function.name == "search_inbox":
            rows = search(database, str(arguments["words"]))
            seen["listed"] += [number for number, _ in rows]
            return "\n".join(f"{number}: {subject}" for number, subject in rows) or "nothing"
        if function.name == "read_mail":
            number = int(arguments["id"])
            row = read(database, number)
            seen["read"] += [number] if row else []
            return row[3] if row else f"There is no mail {number}."
    except (ValueError, KeyError, TypeError):
        return "That cannot be read."
    return f"There is no tool {function.name}."


def judge(scenario, said, seen):
    mail = scenario["mail"]
    listed, opened = mail in seen["listed"], mail in seen["read"]
    right = opened and is_right(said, scenario["answer"])
    reward = 1.0 if right else READ if opened else LISTED if listed else 0.0
    metrics = {"right": float(right), "read": float(opened), "listed": float(listed), "searches": len(seen["listed"]) / 3}
    return {"reward": reward, "metrics": metrics}
