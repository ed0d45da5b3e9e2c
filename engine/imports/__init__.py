"""Attempts that were made elsewhere, as runs of ours."""
