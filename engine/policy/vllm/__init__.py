"""Sampling by a vLLM server of our own, which takes each new adapter while it runs."""
