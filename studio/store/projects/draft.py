"""Texts and checks of the wizard that generates a project from a description. Free of I/O."""

import re
from collections.abc import Sequence

from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.drafts import (
    DRAFT_MARK,
    LEAST,
    Draft,
    DraftScenario,
    DraftTicked,
    Writer,
)

LEAST_CHARACTERS = 20
"""Minimum length of a description in characters."""
LEAST_TESTS = 2
ATTEMPTS = 4
"""Rollouts per scenario that measure the untrained model."""
KEPT = "Paid responses are stored in the project. Repeating the step costs nothing."


def folder_name(title: str) -> str:
    """Return the folder name of a title: "Polite answers!" becomes "polite-answers"."""
    return re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-")[:40].strip("-")


def name_problem(name: str, projects: Sequence[ProjectView]) -> str:
    """Return why a new project cannot have this folder name; empty if it can. Names of unfinished
    drafts count as free."""
    if not name:
        return "Enter a name."
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        return "Use letters, digits, dot, dash and underscore; start with a letter or digit."
    taken = [view for view in projects if view.path.rpartition("/")[2] == name]
    if taken and not is_draft(taken[0]):
        return f"A project named {name} already exists."
    return ""


def is_draft(view: ProjectView) -> bool:
    """Return whether the generation of a project was started and not completed."""
    return view.toml.startswith(DRAFT_MARK)


def description_problem(text: str) -> str:
    """Return why the task description is too short; else empty."""
    lacking = LEAST_CHARACTERS - len(text.strip())
    return "Describe inputs, expected outputs and criteria in one paragraph." * (lacking > 0)


def writer_problem(writer: Writer) -> str:
    """Return why the writer model is not valid; else empty."""
    if not writer.model:
        return "Select the model that drafts the project."
    return "" if "/" in writer.model else "Enter PROVIDER/MODEL, such as openai/gpt-5.4."


def progress_words(progress: DraftTicked) -> str:
    """Describe the current activity of the generation, and its maximum cost."""
    if progress.ended:
        return progress.words
    return f"{progress.words} · at most {dollars(progress.next_usd)} for this call"


def spent_words(progress: DraftTicked | None, budget: float | None) -> str:
    """Describe the money spent so far and the budget (None: no limit); empty before the start."""
    if progress is None:
        return ""
    of = f" of {dollars(budget)}" if budget is not None else ""
    return f"{dollars(progress.spent_usd)}{of} spent"


def dollars(value: float) -> str:
    """Amount in US dollars, with more digits if small: $1.50, $0.0042."""
    return f"${value:.2f}" if value >= 0.1 or not value else f"${value:.4f}"


def left_out_words(left_out: dict[str, int]) -> str:
    """Describe the scenarios left out of a draft, given as reason → number; empty without any."""
    text = " · ".join(f"{count} {why}" for why, count in left_out.items())
    return f"Scenarios left out: {text}" if text else ""


def counts_words(scenarios: Sequence[DraftScenario], wanted: int) -> str:
    """Describe the number of scenarios per split, and the `wanted` number if it is not reached."""
    validation = sum(one.split == "validation" for one in scenarios)
    training = len(scenarios) - validation
    text = f"{training} for training, {validation} for validation"
    return f"{text} · {len(scenarios)} of {wanted} requested" if len(scenarios) < wanted else text


def draft_problem(draft: Draft) -> str:
    """Return why the draft cannot become a project; empty if it can."""
    for text, name in ((draft.title, "title"), (draft.system, "system prompt")):
        if not text.strip():
            return f"The {name} is empty."
    if not draft.rubric.strip():
        return "The rubric is empty. The judge needs one."
    if any(not one.input.strip() for one in draft.scenarios):
        return "A scenario has no input. Enter an input, or delete the scenario."
    validation = sum(one.split == "validation" for one in draft.scenarios)
    if len(draft.scenarios) < LEAST:
        return f"{len(draft.scenarios)} scenarios, but at least {LEAST} are needed."
    if validation < LEAST_TESTS:
        return f"{validation} validation scenarios, but at least {LEAST_TESTS} are needed."
    if len(draft.scenarios) == validation:
        return "No scenario is left for training."
    return ""
