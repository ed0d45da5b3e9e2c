"""The command line: everything the window does, headless."""
