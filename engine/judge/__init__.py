"""LLM judge (RULER): rubric and trajectories of a group to scores and reasons.

Imported by `rollout`, `evaluation`, `training` and above.
"""
