"""State of the studio, folded from events by plain Python. No Qt, no network. Imported by models,
services and above."""
