"""Solves a case: what is known and the clues go in, then three questions are asked in turn.

A scenario is what there is to choose from, the clues, the room that is asked about, and the
answers: who was there, when, and with what. The reward is the share of right answers; the
questions come whether the answer before was right or not.
"""

import openai
from puzzle import sentence

SYSTEM = "Solve the case. Answer with one word."
ASKED = ("who", "when", "what")


async def rollout(scenario, model):
    answers = scenario["answers"]
    right = known = 0
    messages = [{"role": "system", "content": SYSTEM}]
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        for role, question in zip(ASKED, questions(scenario), strict=True):
            messages.append({"role": "user", "content": question})
            answer = await client.chat.completions.create(
                model=model.name, messages=messages, max_completion_tokens=3
            )
            said = answer.choices[0].message.content or ""
            messages.append({"role": "assistant", "content": said})
            word = said.strip().rstrip(".").lower()
            right += word == answers[role].lower()
            known += word in (option.lower() for option in scenario["options"][role])
    return {
        "reward": right / len(ASKED),
        "metrics": {"solved": float(right == len(ASKED)), "sensible": known / len(ASKED)},
    }


def questions(scenario):
    """The case with the first question, then what is asked besides."""
    options = "\n".join(
        f"{role.capitalize()}: {', '.join(values)}" for role, values in scenario["options"].items()
    )
    clues = "\n".join(map(sentence, scenario["clues"]))
    return [f"{options}\n{clues}\nWho was in the {scenario['room']}?", "When?", "With what?"]
