"""Charts on pyqtgraph: cards with panes that share one crosshair. Imported by widgets above it,
services and pages."""
