"""Home page: active run, recent projects, samples. Imported by `shell.page_registry`."""
