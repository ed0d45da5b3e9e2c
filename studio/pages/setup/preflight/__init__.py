"""Preflight of the Setup page: memory, time, checks, tests of agent and judge.

Imported by pages and shell.
"""
