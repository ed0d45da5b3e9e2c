"""Home: what trains, what there is, and where to begin."""
