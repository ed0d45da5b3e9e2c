"""What sets an attempt apart: rewards of a group → its advantages → those of every token. Pure."""
