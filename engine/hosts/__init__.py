"""Servers that train for us: what they have, our engine on them, the tunnel, and what goes to and
fro. The runs they work on are read here from their replicas.
"""
