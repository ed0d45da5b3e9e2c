"""Servers: adding one, the list of them, and the sheet of each."""
