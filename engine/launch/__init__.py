"""Find or start an engine. `local` is this machine."""
