"""The studio's side of the wire: one engine, calls and event streams. No Qt."""
