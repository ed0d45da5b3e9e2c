"""Comparison of runs: charts on top of each other, validations, settings, scenarios.

Imported by the Runs page.
"""
