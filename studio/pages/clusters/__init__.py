"""Clusters in Settings: their list, and the sheet that adds or edits one. Imported by the Settings
page and the shell.
"""
