"""Actions and keyboard shortcuts as data. Importable by every room of the studio."""
