"""Importers: trajectories from JSONL, Parquet and ART folders as runs of a project.

Imported by `server` and `cli`.
"""
