"""Sandbox of agents on Linux: namespaces around an agent's process, and again around each rollout.
`launcher.py` and the `sandboxed_*` files run in it; the rest of the engine imports `pool` and
`machine`."""
