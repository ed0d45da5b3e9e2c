"""Runtime of the studio: tasks with an owner, garbage collection, single instance, resource paths.
Importable by every package of the studio."""
