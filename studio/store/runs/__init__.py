"""State of runs: the fold of events, series, estimates and status words.

Imported by models, services and above.
"""
