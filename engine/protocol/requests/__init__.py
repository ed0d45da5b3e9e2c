"""Requests to the engine and its responses, by subject.

Importable by every package.
"""
