"""Several charts of a page: their grid, the order in which they are filled, their smoothing.

Imported by the pages.
"""
