"""Table of the runs of a project: a persistent cache of their summaries, queries, comparisons.

Imported by the routes.
"""
