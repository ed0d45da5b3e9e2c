"""Remote servers: wizard, list and sheet. Imported by pages and shell."""
