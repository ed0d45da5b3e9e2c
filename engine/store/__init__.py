"""run.db: one SQLite file per run, one writer thread with group commit, readers beside it."""
