"""Runs of an engine: control, queue, lifecycle, worker processes, evaluations and scripts.

Imported by `server.composition`, `server.routes` and other services.
"""
