"""Qt adapters: item models and change signals over studio/store and the engine's pages."""
