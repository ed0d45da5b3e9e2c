"""Rollouts: from scenario to trajectory, through the user's agent and a gateway that records exact
tokens.

Imported by `training`, `evaluation`, `export` and above.
"""
