"""State of remote servers, and the rows that show them. Imported by models, services and above."""
