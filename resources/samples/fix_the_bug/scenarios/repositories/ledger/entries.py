"""Entries of an account: [day, amount]; what is spent is negative."""


def balance(entries, start=0):
    """What is left of `start` (0 by default) after all entries."""
    return start + sum(amount for _, amount in entries)


def spent(entries):
    """What was spent, as a positive number."""
    return sum(-amount for _, amount in entries if amount < 0)


def between(entries, first, last):
    """Entries of the days from `first` to `last`, both included."""
    return [entry for entry in entries if first <= entry[0] <= last]
