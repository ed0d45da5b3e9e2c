"""Clusters of the user, and SkyRL's server, which this engine can run as one. Imported by the
routes and the composition root.
"""
