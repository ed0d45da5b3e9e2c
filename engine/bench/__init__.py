"""Benchmarks: Atelier and other trainers on the same work, interleaved in one run.

Imported by `cli`.
"""
