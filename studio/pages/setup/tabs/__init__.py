"""Tabs of the Setup page: project.toml, scenarios, demonstrations. Imported by pages and shell."""
