"""Sweeps: search over settings, successive halving, results of trials, and the record on disk.

Imported by `server.services` and the command line.
"""
