"""Empty Run page: whether the project can be trained as it is."""

from engine.protocol.problems import Problem
from engine.protocol.records.runs import Split
from studio.text import formatting
from studio.widgets.cards.empty_page import Preparation


def read_well(counts: dict[Split, int]) -> Preparation:
    words = (
        f"{counts.get('train', 0):,} training and {counts.get('validation', 0):,} "
        "validation scenarios"
    )
    return Preparation("setup", "Project is valid", words, done=True)


def to_mend(problems: list[Problem]) -> Preparation:
    title = f"{formatting.plural(len(problems), 'problem')} to fix"
    return Preparation("setup", title, problems[0].message, button="Open Setup")
