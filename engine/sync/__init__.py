"""Folders between engines: what is in them, what is missing there, and how it arrives whole."""
