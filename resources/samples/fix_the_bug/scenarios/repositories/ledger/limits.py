"""Limits of an account."""

from entries import balance, between, spent


def lowest(entries, start):
    """The lowest balance, the one at the start included."""
    low = start
    for count in range(len(entries)):
        low = min(low, balance(entries[: count + 1], start))
    return low


def overdrawn(entries, start, limit=100):
    """Whether the balance was ever more than `limit` (100 by default) below zero."""
    return lowest(entries, start) < -limit


def over_budget(entries, first, last, budget):
    """What was spent above the budget from day `first` to day `last`; 0 if nothing was."""
    extra = spent(between(entries, first, last)) - budget
    return extra if extra > 0 else 0
