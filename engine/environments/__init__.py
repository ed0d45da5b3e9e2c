"""Python environments that Atelier manages; each is used in processes of its own.

`python_of(name)` installs an environment when needed, `installed_python(name)` does not. Imported
by `policy`, `judge`, `rollout`, `integrations`, `remote`, `server` and `cli`; `packaging/` does the
installing.
"""

from engine.environments.bootstrap import EnvironmentMissing, installed_python, python_of

__all__ = ["EnvironmentMissing", "installed_python", "python_of"]
