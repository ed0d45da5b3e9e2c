"""The wire between engine and studio: pydantic models and nothing heavier.

`config` is what a person writes, `records` what the engine stores, `events` what it says while it
works, `requests` what it is asked, `problems` how it says that something is wrong.
"""

API_VERSION = (1, 0)
"""(major, minor): majors must match between studio and engine, minors only add."""
