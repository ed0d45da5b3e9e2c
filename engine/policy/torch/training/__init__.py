"""Trainer: prefix trees, losses and the optimizer.

Imported by `policy.torch`.
"""
