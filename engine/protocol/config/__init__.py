"""Settings of a project (`project.toml`): models, presets and validation.

Importable by every package.
"""
