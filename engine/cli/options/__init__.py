"""Arguments of the commands, grouped by subject.

Imported by `cli.parser` and the commands.
"""
