"""Supervised fine-tuning: demonstrations to tokens to updates; the warm-up, and SFT runs.

Imported by `training`, `server` and `cli`.
"""
