"""Base models: the registry, downloads, and checks of untrusted model files.

Importable by every room above `protocol`.
"""
