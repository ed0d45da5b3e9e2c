"""Tracker clients, one module each; every module imports only its client library.

Imported by `trackers.worker` in the environment of the tracker.
"""
