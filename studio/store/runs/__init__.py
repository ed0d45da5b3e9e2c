"""State of runs: the fold of events, series, estimates and status texts. Imported by models,
services and above."""
