"""Sampling by a vLLM server of our own that loads each new adapter while it runs.

Imported by `policy.start`.
"""
