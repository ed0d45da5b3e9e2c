"""Form of the Setup page. Imported by pages and shell."""
