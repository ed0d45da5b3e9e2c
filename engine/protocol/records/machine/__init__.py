"""Records of a machine: its hardware, the backends it can run, and the Python environments on it.

Imported by everything that imports records.
"""
