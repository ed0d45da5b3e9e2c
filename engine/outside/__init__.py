"""Runs whose attempts a script outside makes, in a loop of its own."""
