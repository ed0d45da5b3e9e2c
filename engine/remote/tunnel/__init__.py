"""Tunnel to the engine of one server: connect, attach, reconnect.

Imported by `remote`.
"""
