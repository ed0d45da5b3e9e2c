"""Remote servers over SSH: survey, installation, tunnel, mirrored runs and transfers.

Imported by `server` and `cli`.
"""
