"""From scenario to trajectory: the user's agent talks to a gateway that records exact tokens."""
