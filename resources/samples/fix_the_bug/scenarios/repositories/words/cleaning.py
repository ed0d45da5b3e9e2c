"""Cleaning of texts."""


def words_of(text):
    """Words of a text in lower case, without the marks . , ! ? at their ends."""
    found = [word.strip(".,!?").lower() for word in text.split()]
    return [word for word in found if word]


def shorten(text, most=10):
    """The text, or its first `most` characters (10 by default) and "..." if it is longer."""
    if len(text) <= most:
        return text
    return text[:most] + "..."
