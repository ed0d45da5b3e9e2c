"""Policy in PyTorch and PEFT, on any device, in its own process.

Started as a process; imported by no room of the engine process.
"""
