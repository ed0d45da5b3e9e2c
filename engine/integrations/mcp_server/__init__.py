"""MCP server by which a coding agent reads projects and runs, and starts runs within limits that a
person gave. The command `mcp-server` uses it; nothing else imports it."""
