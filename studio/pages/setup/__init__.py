"""Setup page: form, project.toml, scenarios and preflight. Imported by `shell.page_registry`."""
