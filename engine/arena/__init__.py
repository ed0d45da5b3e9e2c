"""Models side by side: one question or scenario, the answer of each, and a person's vote."""
