"""Groups of the Trajectories page: list, columns, comparison. Imported by pages and shell."""
