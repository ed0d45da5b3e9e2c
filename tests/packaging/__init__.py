"""Tests of what runs on the standard library alone."""
