"""run.db: one SQLite file per run, one writer thread with group commit, many readers.

Imported by `storage.run_folder`, `judge` and above.
"""
