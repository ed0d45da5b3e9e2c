"""Tracker clients, one module each; every module imports its client library and nothing of ours.

Imported by `trackers.worker` in the environment of the tracker.
"""
