"""Trajectories page: groups, reader, table, labels. Imported by `shell.page_registry`."""
