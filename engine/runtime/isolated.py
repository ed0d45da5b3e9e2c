"""Run a module of the engine with only the engine importable: `python -P isolated.py MODULE …`.

Other environments may contain packages named like our folders (Unsloth brings one named studio), so
the parent folder of `engine` is never on their path. Standard library only.
"""

import importlib.util
import runpy
import sys
from pathlib import Path


def import_engine() -> None:
    """Import the engine package by its location, without adding its parent folder to the path."""
    here = Path(__file__).parents[1]
    found = importlib.util.spec_from_file_location(
        here.name, here / "__init__.py", submodule_search_locations=[str(here)]
    )
    assert found is not None
    assert found.loader is not None
    package = importlib.util.module_from_spec(found)
    sys.modules[here.name] = package
    found.loader.exec_module(package)


def main() -> None:
    import_engine()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
