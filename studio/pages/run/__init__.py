"""Run: what the training does now, and how it went so far."""
