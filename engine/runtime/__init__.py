"""Runtime support: child processes, files, ids, seeds, timeouts.

Importable by every package above `protocol`.
"""
