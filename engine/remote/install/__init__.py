"""Installation of an engine on a server: survey, source archive, uploads, models.

Imported by `remote`.
"""
