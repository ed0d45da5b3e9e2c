"""How good a model is on scenarios: during training, and side by side with others."""
