"""Wire format between engine, studio and command line: pydantic models and nothing heavier.

A leaf: it imports no other room, and every room may import it.
"""

API_VERSION = (1, 0)
"""(major, minor): majors must match between studio and engine, minors only add."""
