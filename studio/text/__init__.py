"""Text without Qt: formatting of numbers, durations and sizes; word differences; help pages.
Importable by every package of the studio."""
