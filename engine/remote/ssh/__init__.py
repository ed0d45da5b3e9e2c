"""SSH connections: one interface (`base.Connection`) with two transports.

AsyncSSH uses the settings and keys of ~/.ssh; the installed `ssh` program supports hardware keys,
Kerberos and other methods that AsyncSSH lacks. Imported by `remote`.
"""
