"""Command line of the studio: `python -m studio [--project PATH] [--workspace PATH]`"""

import argparse
import gc
import logging
import sys


def main() -> int:
    """Parse the arguments, then import Qt and run the studio; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m studio", description="Open the studio.")
    parser.add_argument("--project", default="", help="folder of a project to open")
    parser.add_argument("--workspace", default="", help="folder of projects")
    parser.add_argument("--verbose", action="store_true", help="log to the terminal")
    wanted = parser.parse_args()
    level = logging.INFO if wanted.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    gc.disable()  # for the imports; later `GuiCollector` collects
    from studio import app

    return app.main(wanted.project, wanted.workspace)


if __name__ == "__main__":
    sys.exit(main())
