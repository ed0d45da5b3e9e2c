"""Wizard for a project from a description. Imported by pages and shell."""
