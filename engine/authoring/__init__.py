"""A task in words → a project that can be trained: an LLM writes its system prompt, its rubric and
its scenarios (AutoRL); for an agent with tools, tasks that need them (MCP·RL).
"""
