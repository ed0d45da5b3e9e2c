"""Local judge: a small preference model fitted on the engine.

Imported by `judge.panel` and `server`.
"""
