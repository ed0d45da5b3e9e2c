"""Tests of what the person trusts and confirms."""
