"""Checkpoints page: list, comparison, arena and export. Imported by `shell.page_registry`."""
