"""Run page: step strip, charts, side column, log. Imported by `shell.page_registry`."""
