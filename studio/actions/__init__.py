"""Actions and keyboard shortcuts as data. Every folder of the studio may import it."""
