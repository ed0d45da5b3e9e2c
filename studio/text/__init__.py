"""Text without Qt: numbers, durations and sizes as words; differences of two texts.

Importable by every room of the studio.
"""
