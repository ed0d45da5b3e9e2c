"""Times of a day as text, "09:30", and as minutes since midnight."""


def minutes(text):
    """Minutes since midnight of a time such as "09:30"."""
    hours, rest = text.split(":")
    return int(hours) * 60 + int(rest)


def clock(count):
    """Time as text, with two digits each; 24:00 is 00:00 again."""
    return f"{count // 60 % 24:02}:{count % 60:02}"


def later(text, count=30):
    """The time `count` minutes (30 by default) later."""
    return clock(minutes(text) + count)
