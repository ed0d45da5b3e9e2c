"""Transcript: virtual rows over plain text, token tints, side-by-side text. Imported by widgets
above it, services and pages."""
