"""The home copy of a run that lives on another engine: pages of changes, out there and in here."""
