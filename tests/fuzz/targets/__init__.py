"""Fuzz target modules; see `tests.fuzz` for their interface."""
