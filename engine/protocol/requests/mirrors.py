"""Headers that travel beside a page of changes."""

LAST = "Atelier-Last-Seq"
"""The last event in the page."""
KNOWN = "Atelier-Known-Seq"
"""The last event of the run when it was asked."""
