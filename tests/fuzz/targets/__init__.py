"""Modules of the fuzz targets, one each; their contract is in `tests.fuzz`."""
