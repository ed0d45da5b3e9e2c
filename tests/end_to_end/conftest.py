"""The studio's loop, for tests that need the whole product."""

from tests.studio.conftest import run

__all__ = ["run"]
