"""Widgets shared by the pages: values are set through setters, user intent is emitted as signals.
Imported by services and pages; a widget never connects to another widget."""
