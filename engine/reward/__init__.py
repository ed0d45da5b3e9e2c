"""Rewards of trajectories: named parts, constraints, labels, orders. Pure functions.

Importable by every package from `judge` up.
"""
