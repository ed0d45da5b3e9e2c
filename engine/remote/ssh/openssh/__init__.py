"""SSH transport by the installed OpenSSH client.

Imported by `remote.ssh.connect`.
"""
