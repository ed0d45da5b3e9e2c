"""Environments beside the engine's own: what they hold shares no process with anything else.

`python_of(name)` is the door for who needs one, `installed_python(name)` for who can do without.
`catalogue` says what there is, `job` installs, checks, repairs and removes, `engines` says which
engine is started. What is on the disk is the business of packaging/, and of nobody else.
"""

from engine.environments.bootstrap import EnvironmentMissing, installed_python, python_of

__all__ = ["EnvironmentMissing", "installed_python", "python_of"]
