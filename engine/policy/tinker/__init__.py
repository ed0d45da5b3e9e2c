"""Policy on a cluster: sampling and training by a server with Tinker's API, with our own losses.

Imported by `policy.start` and by the services and commands of clusters.
"""
