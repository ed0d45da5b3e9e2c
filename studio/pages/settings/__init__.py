"""Settings page: appearance, engines, API keys, shortcuts. Imported by `shell.page_registry`."""
