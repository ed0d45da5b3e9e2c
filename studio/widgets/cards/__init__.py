"""Cards, sheets, notices and empty pages. Imported by widgets above it, services and pages."""
