"""Setup: five choices, what follows from them, and what a run will need."""
