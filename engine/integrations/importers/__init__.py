"""Importers: trajectories from JSONL, traces, Parquet and ART folders, as runs or scenarios.

Imported by `server` and `cli`.
"""
