"""The chart grammar (tokens.md section 6) on pyqtgraph: cards of panes that share one crosshair."""
