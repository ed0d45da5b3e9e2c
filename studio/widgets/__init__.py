"""Shared parts of the pages. Plain values in through setters, intent out through past-tense
signals.

A widget knows no store, no engine and no network, and holds no literal colour: it asks
`studio.theme`.
"""
