"""AutoRL: projects from a description, written by an LLM.

Imported by `server` and `cli`.
"""
