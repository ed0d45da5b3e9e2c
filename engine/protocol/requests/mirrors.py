"""Headers of a page of changes."""

LAST = "Atelier-Last-Seq"
"""Header with the sequence number of the last event in the page."""
KNOWN = "Atelier-Known-Seq"
"""Header with the sequence number of the run's last event at the time of the request."""
