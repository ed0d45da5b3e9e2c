"""Fixture `run` of the studio for end-to-end tests."""

from tests.studio.conftest import run

__all__ = ["run"]
