"""What the wizard of a described task says and checks. Pure."""

import re
from collections.abc import Sequence

from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.drafts import BEGUN, LEAST, Draft, DraftScenario, DraftTold, Writer

LEAST_WORDS = 20
"""Characters of a description."""
LEAST_TESTS = 2
ATTEMPTS = 4
"""At each scenario, to see what the untrained model can do."""
KEPT = "What was paid for is kept in the project: asked again, it costs nothing."


def folder_name(title: str) -> str:
    """Polite answers! is polite-answers."""
    return re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-")[:40].strip("-")


def name_problem(name: str, projects: Sequence[ProjectView]) -> str:
    """Why a project cannot be called so; one that was begun by describing it can."""
    if not name:
        return "Give it a name."
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        return "Letters, digits, dot, dash and underscore; the first no sign."
    taken = [view for view in projects if view.path.rpartition("/")[2] == name]
    if taken and not is_begun(taken[0]):
        return f"There is a project called {name} already."
    return ""


def is_begun(view: ProjectView) -> bool:
    """Whether it is being written."""
    return view.toml.startswith(BEGUN)


def description_problem(text: str) -> str:
    lacking = LEAST_WORDS - len(text.strip())
    return "Say in a paragraph what comes in, what should come out, what is good." * (lacking > 0)


def writer_problem(writer: Writer) -> str:
    if not writer.model:
        return "Name who writes."
    return "" if "/" in writer.model else "Write PROVIDER/MODEL, as openai/gpt-5.4."


def progress_words(told: DraftTold) -> str:
    """What it does now, and what that can cost at most."""
    if told.ended:
        return told.words
    return f"{told.words} · at most {dollars(told.next_usd)} for this question"


def spent_words(told: DraftTold | None, budget: float | None) -> str:
    if told is None:
        return ""
    of = f" of {dollars(budget)}" if budget is not None else ""
    return f"{dollars(told.spent_usd)}{of} spent"


def dollars(value: float) -> str:
    """Cents, and more of them where there are few: $1.50, $0.0042."""
    return f"${value:.2f}" if value >= 0.1 or not value else f"${value:.4f}"


def left_out_words(left_out: dict[str, int]) -> str:
    said = " · ".join(f"{count} {why}" for why, count in left_out.items())
    return f"Left out: {said}" if said else ""


def counts_words(scenarios: Sequence[DraftScenario], wanted: int) -> str:
    tests = sum(one.split == "validation" for one in scenarios)
    practise = len(scenarios) - tests
    said = f"{practise} to practise, {tests} to test"
    return f"{said} · {len(scenarios)} of {wanted} wanted" if len(scenarios) < wanted else said


def draft_problem(draft: Draft) -> str:
    """Why it cannot become a project yet; empty where it can."""
    for text, name in ((draft.title, "title"), (draft.system, "system prompt")):
        if not text.strip():
            return f"The {name} is empty."
    if not draft.rubric.strip():
        return "The rubric is empty: the judge would have nothing to judge by."
    if any(not one.input.strip() for one in draft.scenarios):
        return "A scenario has no input: write one, or delete it."
    tests = sum(one.split == "validation" for one in draft.scenarios)
    if len(draft.scenarios) < LEAST:
        return f"{len(draft.scenarios)} scenarios: {LEAST} are the least there can be."
    if tests < LEAST_TESTS:
        return f"{tests} of them to test with: {LEAST_TESTS} are the least there can be."
    if len(draft.scenarios) == tests:
        return "None of them is to practise with."
    return ""
