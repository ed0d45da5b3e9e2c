"""Tests of the standard-library code in packaging/."""
