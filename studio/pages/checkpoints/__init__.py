"""The Checkpoints page: what is kept, compared, talked to and exported."""
