"""Meetings: [start, end] as text."""

from times import clock, later, minutes


def overlap(one, other):
    """Whether two meetings overlap; one that starts when the other ends does not."""
    return minutes(one[0]) < minutes(other[1]) and minutes(other[0]) < minutes(one[1])


def free(meeting, others):
    """Whether a meeting overlaps none of the others."""
    return not any(overlap(meeting, other) for other in others)


def busy(meetings):
    """Length of all meetings together, as text."""
    return clock(sum(minutes(end) - minutes(start) for start, end in meetings))


def first_free(start, others):
    """Start of the first free half hour from `start` on, tried every 30 minutes; "" after 8 tries."""
    for _ in range(8):
        if free([start, later(start)], others):
            return start
        start = later(start)
    return ""
