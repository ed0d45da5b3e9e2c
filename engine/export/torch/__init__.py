"""Processes that build an export and read it back, with torch.

Started as processes; imported by no room of the engine process.
"""
