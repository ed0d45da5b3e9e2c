"""SkyRL's server, a self-hosted cluster: started on this machine, bound to loopback.

Imported by the commands of clusters; `launch` and `launch_engine` run in the environment of SkyRL.
"""
