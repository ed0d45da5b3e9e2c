"""Run folders: the open run, its lock, its specification and its files.

Imported by `judge` and above.
"""
