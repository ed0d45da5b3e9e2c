"""Labels of a person applied to an open run: stored, previewed as advantages, undone.

Imported by `training.step` and `server`.
"""
