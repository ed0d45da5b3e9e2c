"""Folder synchronisation between engines: manifests, uploads and downloads by content hash.

Imported by `remote` and `server`.
"""
