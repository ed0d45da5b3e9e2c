"""Tools of an agent: Python packages and MCP servers. Imported by pages and shell."""
