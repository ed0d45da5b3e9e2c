"""What a step of training is made of: its scenarios, its batches, its updates, its seconds."""
