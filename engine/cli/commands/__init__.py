"""Commands of the command line, one module each, with a function `run(arguments) -> int`.

Imported by `cli.parser` when the command runs.
"""
