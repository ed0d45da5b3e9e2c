"""Servers reached over SSH: one interface, and two ways to it.

`connect` goes by the person's own ~/.ssh, in our own loop (AsyncSSH) or by the machine's `ssh`.
Nothing here is imported before somebody has a server.
"""
