"""Checkpoints: save, verify, retention, references by name, branches.

Imported by `evaluation`, `training`, `export` and above.
"""
