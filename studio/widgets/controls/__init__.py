"""Controls: buttons, inputs, toggles, segments. Imported by widgets above it, services and
pages."""
