"""Task of Inspect with a tool, a follow-up question and two scorers, one with two values."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser
from inspect_ai.scorer import Score, Target, includes, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver, use_tools
from inspect_ai.tool import Tool, tool


@tool
def add() -> Tool:
    async def execute(x: int, y: int) -> str:
        """Add two numbers.

        Args:
            x: First number.
            y: Second number.
        """
        return str(x + y)

    return execute


@solver
def follow_up() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.messages.append(ChatMessageUser(content="go"))
        return await generate(state)

    return solve


@scorer(metrics={"*": [mean(), stderr()]})
def letters():
    async def score(state: TaskState, target: Target) -> Score:
        texts = [one.text for one in state.messages if one.role == "assistant"]
        count = sum(letter.isalpha() for letter in "".join(texts))
        explanation = f"{count} letters in {len(texts)} answers"
        return Score(value={"share": count / 24, "answers": len(texts)}, explanation=explanation)

    return score


@task
def letters_twice(count: int = 10) -> Task:
    samples = [
        Sample(input=f"Say {number}", target="aeiou"[number % 5], metadata={"number": number})
        for number in range(count)
    ]
    return Task(
        dataset=samples,
        solver=[use_tools(add()), generate(), follow_up()],
        scorer=[includes(), letters()],
    )
