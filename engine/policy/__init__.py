"""The model being trained: able to sample and to learn, behind one interface."""
