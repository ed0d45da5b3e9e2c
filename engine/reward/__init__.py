"""What an attempt is worth: named parts, weights, constraints."""
