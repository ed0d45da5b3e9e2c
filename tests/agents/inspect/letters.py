"""Tasks of Inspect: one with a tool, a follow-up question and two scorers, one of these with two
values; and tasks that cannot be scored here."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser, get_model
from inspect_ai.scorer import Score, Scorer, Target, includes, mean, model_graded_qa, scorer, stderr
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
def letters() -> Scorer:
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


@scorer(metrics=[mean()])
def unsteady() -> Scorer:
    """Scorer that raises, gives no score, or gives text, depending on the sample."""

    async def score(state: TaskState, target: Target) -> Score:
        number = state.metadata["number"]
        if number % 3 == 0:
            raise ValueError("no letters here")
        return Score.unscored(reason="refusal") if number % 3 == 1 else Score(value="perhaps")

    return score


@scorer(metrics=[mean()])
def asking() -> Scorer:
    """Scorer that calls the model of the task."""

    async def score(state: TaskState, target: Target) -> Score:
        output = await get_model().generate("Is it right?")
        return Score(value=len(output.completion))

    return score


@task
def failing() -> Task:
    samples = [Sample(input=f"Say {n}", metadata={"number": n}) for n in range(4)]
    return Task(dataset=samples, solver=generate(), scorer=unsteady())


@task
def asked() -> Task:
    return Task(dataset=[Sample(input=f"Say {n}") for n in range(4)], scorer=asking())


@task
def graded() -> Task:
    samples = [Sample(input=f"Say {n}", target="aeiou") for n in range(4)]
    return Task(dataset=samples, scorer=model_graded_qa())


@task
def in_docker() -> Task:
    return Task(dataset=[Sample(input="Say 1")], scorer=includes(), sandbox="docker")
