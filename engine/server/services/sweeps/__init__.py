"""Sweeps of an engine: their records, the runs that they start one after another, and commands.

Imported by `server.composition` and `server.routes`.
"""
