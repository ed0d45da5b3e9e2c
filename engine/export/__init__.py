"""Export of a checkpoint to files that other programs load, with a parity report.

Imported by `remote`, `server` and `cli`.
"""
