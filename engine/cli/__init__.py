"""Command line: everything the window does, headless.

Imported by `engine.__main__` alone.
"""
