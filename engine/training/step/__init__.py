"""Stages of one training step: scenarios, batches, updates and metrics.

Imported by `training.loop` and `integrations.scripts`.
"""
