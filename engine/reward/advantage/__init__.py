"""Advantages: rewards of a group, then of trajectories, then of tokens. Pure.

Imported by every room from `judge` up.
"""
