"""Base models: the registry, downloads, and checks of untrusted model files.

Every folder above `protocol` may import it.
"""
