"""Summaries of an account."""

from entries import balance, between, spent
from limits import overdrawn


def week(entries, number):
    """Spent and saved in a week; week 1 has the days 1 to 7."""
    chosen = between(entries, number * 7 - 6, number * 7)
    return [spent(chosen), balance(chosen)]


def rating(entries, start):
    """"red" if it was overdrawn, "yellow" if less is left than at the start, otherwise "green"."""
    if overdrawn(entries, start):
        return "red"
    return "yellow" if balance(entries, start) < start else "green"
