"""A project that an LLM writes for a task in words, step by step."""
