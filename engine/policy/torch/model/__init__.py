"""Model with its LoRA adapter, and what sampling and training share: attention, head, features.

Imported by `policy.torch`.
"""
