"""Models page: search of the hub, models on this machine, and downloads.

Importable by shell and app.
"""
