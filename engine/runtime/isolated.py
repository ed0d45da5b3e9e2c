"""Run one of our modules where only this package of ours is seen: `python -P isolated.py MODULE …`.

Other people's environments may hold packages that are called as our folders are (Unsloth brings one
named studio), so the folder above is never on their path. Standard library only.
"""

import importlib.util
import runpy
import sys
from pathlib import Path


def import_engine() -> None:
    """Import our package, by its place and not by a path that has more."""
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
