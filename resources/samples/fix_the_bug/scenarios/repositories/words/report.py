"""Reports on texts."""

from cleaning import shorten
from counting import common, counts, longest


def report(text):
    """The text shortened, its number of different words, its longest word, and its common words."""
    return [shorten(text), len(counts(text)), longest(text), common(text)]


def similar(one, other):
    """Whether two texts have at least half of the different words of the first one in common."""
    first, second = counts(one), counts(other)
    shared = [word for word in first if word in second]
    return 2 * len(shared) >= len(first)
