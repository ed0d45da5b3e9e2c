"""What the machine can do, what a step costs, and whether the two fit."""
