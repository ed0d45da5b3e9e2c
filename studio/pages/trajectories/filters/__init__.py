"""Filter bar of the Trajectories page: expression with completion, mistakes, marks of what was
found. Imported by the page and the group list."""
