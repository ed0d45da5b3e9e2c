"""Agent processes: the user's code in the user's interpreter.

Imported by `rollout` and above; `host.py` runs in the agent's process.
"""
