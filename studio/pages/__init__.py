"""Pages of the window: each reads models and stores and emits what a person wants.

Imported by `shell` and `main_window`.
"""
