"""Writes a summary of a report. A reader sees its first thirty words, not the report, and is asked questions.

The reader is a rule, so that it costs nothing and cannot be talked round: a question is answered where its answer
stands close to one of the words that it is about. A number that the report lacks costs a quarter.
"""

import re

import openai

LIMIT = 30  # words that the reader sees
CLOSE = 5  # words between an answer and what it is about
INVENTED = 0.25
SYSTEM = f"Summarize the report in at most {LIMIT} words. Keep every fact that somebody may ask for."
WORD = re.compile(r"\d+[:.]\d+|\w+")


async def rollout(scenario, model):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": scenario["report"]}]
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        answer = await client.chat.completions.create(
            model=model.name, messages=messages, max_completion_tokens=64
        )
    return judge(scenario, answer.choices[0].message.content or "")


def judge(scenario, summary):
    seen = words(summary)[:LIMIT]
    answered = [answers(seen, question) for question in scenario["questions"]]
    numbers = {word for word in seen if word[0].isdigit()}
    invented = len(numbers - set(words(scenario["report"])))
    share = sum(answered) / len(answered)
    return {
        "reward": max(0.0, share - INVENTED * invented),
        "metrics": {"answered": share, "invented": invented, "words": len(words(summary))},
    }


def answers(seen, question):
    """The answer stands whole, and not far from a word of the question's subject."""
    wanted = words(question["answer"])
    places = [i for i in range(len(seen)) if seen[i : i + len(wanted)] == wanted]
    subjects = [i for i, word in enumerate(seen) if word in question["about"]]
    return any(abs(place - subject) <= CLOSE for place in places for subject in subjects)


def words(text):
    return WORD.findall(text.lower())
