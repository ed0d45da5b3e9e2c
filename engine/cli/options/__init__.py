"""What can be typed behind each command, by kind of command."""
