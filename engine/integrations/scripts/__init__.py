"""Runs of external scripts (ART): the script makes the rollouts, the engine trains.

Imported by `server`.
"""
