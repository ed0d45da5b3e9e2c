"""Runtime parts without a subject of their own: child processes, files, ids, seeds, timeouts.

Importable by every room above `protocol`.
"""
