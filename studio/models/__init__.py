"""Qt item models over the store and the paged queries of the engine. Imported by services, pages
and above."""
