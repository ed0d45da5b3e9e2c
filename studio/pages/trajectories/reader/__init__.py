"""Reader of one trajectory: outline, transcript, evidence. Imported by pages and shell."""
