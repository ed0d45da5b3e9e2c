"""Connection to an engine: calls, event streams and reconnection. Free of Qt. Imported by models,
services and above."""
