"""Labels on the Trajectories page: draft, preview, commit, undo. Imported by pages and shell."""
