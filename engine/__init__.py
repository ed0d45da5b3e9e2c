"""The engine: trains, stores, serves. It knows nothing of Qt, and importing it imports nothing."""

__version__ = "0.1.0"
