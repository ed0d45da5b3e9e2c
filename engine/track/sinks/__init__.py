"""One module a service; each imports its client library, and nothing of ours."""
