"""Traces of model calls (OpenTelemetry, OpenInference, Langfuse) as conversations of an import.

Imported by the importers. Reads JSON alone; no tracing library is needed.
"""
