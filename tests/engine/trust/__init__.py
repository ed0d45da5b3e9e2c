"""Tests of trust and confirmations."""
