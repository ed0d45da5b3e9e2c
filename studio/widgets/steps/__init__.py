"""Step strip and phases of a step. Imported by widgets above it, services and pages."""
