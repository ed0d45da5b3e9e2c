"""A backend for scripts written with OpenPipe's ART: the line that makes the backend changes, and
Atelier's engine samples, trains and keeps.

It needs `openpipe-art` in the script's own environment, and nothing of what the engine needs.
"""

from engine.integrations.art.backend import AtelierBackend

__all__ = ["AtelierBackend"]
