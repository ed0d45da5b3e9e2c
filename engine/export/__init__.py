"""A checkpoint becomes files that other programs load, with the proof that they are what was
trained: source (what) → torch (builds, and reads back, in processes of their own) → parity (judges)
→ place (publishes) → card. `job` is the whole way, top to bottom."""
