"""Environment with a tool, in the API of verifiers before 0.4."""

import verifiers as vf
from datasets import Dataset


async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


async def right(completion, answer) -> float:
    last = completion[-1]
    text = last["content"] if isinstance(last, dict) else last.content
    return float(answer in str(text))


def broken(completion) -> float:
    raise KeyError("no such")


def load_environment(count=8, weight=0.0, group=False):
    rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(count)]
    rubric = vf.Rubric(funcs=[right, broken], weights=[2.0, weight])
    if group:

        def best(completions) -> list[float]:
            return [0.0 for _ in completions]

        rubric.add_reward_func(best)
    return vf.ToolEnv(dataset=Dataset.from_list(rows), rubric=rubric, tools=[add], max_turns=3)
