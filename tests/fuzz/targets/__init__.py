"""One module for each fuzz target; its contract is in `tests.fuzz`."""
