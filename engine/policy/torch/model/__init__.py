"""Model with LoRA adapter, and code shared by sampling and training: attention, head, features.

Imported by `policy.torch`.
"""
