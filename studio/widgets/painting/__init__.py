"""Painting: boxes, marks, focus ring and motion. Imported by widgets above it, services and
pages."""
