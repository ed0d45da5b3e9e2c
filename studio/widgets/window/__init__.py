"""Parts of the window frame: sidebar, header, engine pill. Imported by widgets above it, services
and pages."""
