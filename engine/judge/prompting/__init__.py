"""Prompts and replies of the judge: rubric, transcript, canaries, parsing. Pure but for the rubric
file.

Imported by `judge` and above.
"""
