"""Charts on pyqtgraph: cards of panes that share one crosshair.

Imported by widgets above it, services and pages.
"""
