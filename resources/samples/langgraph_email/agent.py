"""A LangGraph ReAct agent over an inbox, as its documentation builds one; only its chat model is told where to ask.

Everything else of LangGraph stays: tools are plain functions, the graph runs the loop. The reward looks at the state that
comes out.
"""

import re

from inbox import inbox, is_right, read, search
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from langgraph.prebuilt import create_react_agent

PROMPT = "Answer from the inbox: search, read one mail, then answer in a few words."
MOST_STEPS = 8
READ, LISTED = 0.4, 0.15
"""Rewards for the right mail opened, or listed, without a right answer."""


def search_inbox(words: str) -> str:
    """The three mails that fit best."""
    database = inbox()
    rows = search(database, words)
    database.close()
    return "\n".join(f"{number}: {subject}" for number, subject in rows) or "nothing"


def read_mail(id: int) -> str:
    """The text of a mail."""
    database = inbox()
    row = read(database, id)
    database.close()
    return row[3] if row else f"There is no mail {id}."


async def rollout(scenario, model):
    chat = ChatOpenAI(model=model.name, base_url=model.base_url, api_key=model.api_key)
    agent = create_react_agent(chat, [search_inbox, read_mail], prompt=PROMPT)
    question = {"messages": [("user", scenario["question"])]}
    try:
        state = await agent.ainvoke(question, {"recursion_limit": MOST_STEPS})
    except GraphRecursionError:  # it called tools to the end and never answered
        return {"reward": 0.0, "metrics": {"right": 0.0, "endless": 1.0}}
    return judge(scenario, state["messages"])


def judge(scenario, messages):
    said = messages[-1].text
    number = scenario["mail"]
    calls = [call for message in messages for call in getattr(message, "tool_calls", [])]
    results = [message.text for message in messages if message.type == "tool"]
    opened = any(call["name"] == "read_mail" and call["args"].get("id") == number for call in calls)
    listed = any(re.search(rf"^{number}: ", result, re.MULTILINE) for result in results)
    right = opened and is_right(said, scenario["answer"])
    reward = 1.0 if right else READ if opened else LISTED if listed else 0.0
    metrics = {"right": float(right), "read": float(opened), "listed": float(listed), "endless": 0.0}
    return {"reward": reward, "metrics": metrics}
