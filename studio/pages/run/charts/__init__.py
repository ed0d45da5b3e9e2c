"""Charts of the Run page. Imported by pages and shell."""
