"""Launcher: finds, starts and authenticates an engine on this machine.

Imported by studio, command line, `remote`, and `policy` (interpreters).
"""
