"""HTTP server of the engine: loopback only, a token on every route, events as a stream.

Imported by `cli` alone.
"""
