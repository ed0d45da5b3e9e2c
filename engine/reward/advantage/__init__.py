"""Advantages of groups, trajectories and tokens. Pure functions.

Importable by every package from `judge` up.
"""
