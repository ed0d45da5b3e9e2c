"""Processes that build an export and read it back, with torch.

Each runs as a process of its own; the engine process never imports this package.
"""
