"""Calibration of judges: agreement with labels, examples, rubric suggestions, rescoring.

Imported by `server` and `cli`.
"""
