"""Sweeps of a project: form, parallel coordinates, importance, table of trials.

Imported by the Runs page.
"""
