"""The policy in PyTorch and PEFT, on any device, in a process of its own."""
