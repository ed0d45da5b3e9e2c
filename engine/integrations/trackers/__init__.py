"""Experiment trackers: metrics and traces of a run, sent by one process per tracker.

Imported by `server` and `cli`.
"""
