"""Measurements against the field: the same work, the same machine, in turn."""
