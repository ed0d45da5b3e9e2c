"""Gateway: OpenAI-compatible endpoint for agents; every rollout has its own key.

Imported by `rollout` and above.
"""
