"""Tables, and the small charts in their cells. Imported by widgets above it, services and pages."""
