"""Runs page: table of all runs of a project, their notes, and the comparison of up to eight.

Imported by the page registry.
"""
