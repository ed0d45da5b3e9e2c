"""Run `python ARGUMENTS`; where it names the port of an engine, name another and keep the true one.

`hostile_attach.py PYTHON PORT FILE ARGUMENTS…`: the standard library alone.
"""

import json
import subprocess
import sys
from pathlib import Path


def main() -> int:
    python, port, port_file, *arguments = sys.argv[1:]
    done = subprocess.run([python, *arguments], stdout=subprocess.PIPE, check=False)
    for line in done.stdout.decode().splitlines():
        said = line
        if line.startswith("{") and '"port"' in line:
            reached = json.loads(line)
            Path(port_file).write_text(str(reached["port"]))
            said = json.dumps(reached | {"port": int(port)})
        print(said)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
