"""Pages of the window; each reads models and stores and emits user intents as signals. Imported by
`shell` and `main_window`."""
