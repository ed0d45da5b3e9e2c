"""Storage on disk: project folders, run folders, run databases and checkpoints.

Imported by `judge` and above.
"""
