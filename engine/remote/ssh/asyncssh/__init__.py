"""SSH transport by the AsyncSSH library.

Imported by `remote.ssh.connect`.
"""
