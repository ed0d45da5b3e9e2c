"""Forms: rows, editors and fields that keep what a person types. Imported by widgets above it,
services and pages."""
