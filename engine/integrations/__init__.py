"""Integrations with other tools, one folder each.

Imported by `autorl`, `server` and `cli`; never by the core.
"""
