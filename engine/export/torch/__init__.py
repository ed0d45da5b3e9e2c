"""What needs torch: the process that builds an export, and the fresh one that reads it back."""
