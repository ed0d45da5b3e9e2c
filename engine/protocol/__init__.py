"""Wire format between engine, studio and command line: pydantic models, free of heavy imports.

A leaf package: it imports no other package of the engine, and every package may import it.
"""

API_VERSION = (1, 0)
"""(major, minor) of the API: studio and engine must agree on the major; minors only add."""
