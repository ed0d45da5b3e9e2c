"""Home page: living run, recent projects, samples.

Imported by `shell.page_registry`.
"""
