"""MCP servers of a project: what `mcp.json` says of them, and what they offer. The agent alone
speaks to them, in its own environment.
"""
