"""Rendering of messages into tokens: chat templates and tokenizers, in a limited process.

Imported by `rollout`, `training.sft` and `export`.
"""
