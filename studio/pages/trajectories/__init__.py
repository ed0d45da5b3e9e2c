"""Trajectories: find attempts, read siblings beside each other, read one token by token."""
