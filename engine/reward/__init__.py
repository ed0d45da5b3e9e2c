"""Rewards of trajectories: named parts, constraints, labels, orders. Pure.

Imported by every room from `judge` up.
"""
