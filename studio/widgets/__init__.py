"""Widgets shared by the pages: values in through setters, intent out through signals.

Imported by services and pages; a widget never connects to another widget.
"""
