"""State folded from events by plain Python. No Qt, no network: values in, values out."""
