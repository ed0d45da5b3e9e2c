"""Tests of the services for runs."""
