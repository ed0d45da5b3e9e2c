"""Preflight of the Setup page: memory, time, project checks, live checks of agent and judge.
Imported by pages and shell."""
