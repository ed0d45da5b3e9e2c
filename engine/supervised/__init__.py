"""Supervised training: demonstrations → tokens → updates; the warm-up, and SFT runs."""
