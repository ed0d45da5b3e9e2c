"""Counts of words."""

from cleaning import words_of


def counts(text):
    """How often each word is in a text, in the order of their first use."""
    found = {}
    for word in words_of(text):
        found[word] = found.get(word, 0) + 1
    return found


def common(text, least=2):
    """Words that occur at least `least` times (2 by default), in alphabetical order."""
    return sorted(word for word, count in counts(text).items() if count >= least)


def longest(text):
    """The longest word of a text, "" if it has none; the first one of equals."""
    best = ""
    for word in words_of(text):
        if len(word) > len(best):
            best = word
    return best
