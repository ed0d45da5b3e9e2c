"""Records that the engine stores and shows: runs, trajectories, labels, verdicts, metrics.

Importable by every package.
"""
