"""Base models as the Models page shows them: rows, chips, facts and downloads, free of Qt and I/O.

Importable by models, services, pages and shell.
"""
