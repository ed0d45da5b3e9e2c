"""Sampling by a vLLM server of the engine that loads each new adapter while it runs.

Imported by `policy.start`.
"""
