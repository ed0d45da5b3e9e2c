"""What an agent calls: its packages, and the MCP servers whose tools it is offered."""
