"""The engine's HTTP face: loopback only, a token on every route, events as a stream."""
