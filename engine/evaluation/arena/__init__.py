"""Arena: the answers of several models side by side, and votes.

Imported by `server` and `cli`.
"""
