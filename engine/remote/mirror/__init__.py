"""Mirrors: local copies of remote runs, kept up to date by pages of changes.

Imported by `remote` and `server`.
"""
