"""Policy in PyTorch and PEFT, on any device, in its own process.

Started as a process; the engine process imports none of it.
"""
