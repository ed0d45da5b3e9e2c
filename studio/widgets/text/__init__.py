"""Text: labels, phrases, chips and tooltips. Imported by widgets above it, services and pages."""
