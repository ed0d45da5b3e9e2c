"""Training: `loop.py` is the algorithm from rollout to checkpoint, top to bottom.

Imported by `server`, `integrations.scripts` and `remote`.
"""
