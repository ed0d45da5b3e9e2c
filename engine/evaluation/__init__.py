"""Evaluation: validation during training, comparison of models, and the arena.

Imported by `training`, `integrations`, `remote` and `server`.
"""
