"""ART backend: a script written with OpenPipe's ART changes one line to sample and train with an
Atelier engine, which also stores the run.

Requires `openpipe-art` in the script's environment, and none of the packages of the engine.
"""

from engine.integrations.art.backend import AtelierBackend

__all__ = ["AtelierBackend"]
