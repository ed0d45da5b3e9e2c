"""SSH connections: one interface (`base.Connection`) with two transports.

AsyncSSH connects in our own event loop, by the settings and keys of ~/.ssh; the installed `ssh`
program serves hardware keys, Kerberos and other methods that AsyncSSH lacks. Imported by `remote`.
"""
