"""MCP servers of a project: `mcp.json` and the tools that its servers offer.

Imported by `autorl`, `server` and `cli`.
"""
