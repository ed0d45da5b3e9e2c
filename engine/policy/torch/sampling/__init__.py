"""Sampler: continuous batching with exact token ids and log-probs.

Imported by `policy.torch`.
"""
