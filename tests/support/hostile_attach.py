"""Run `python ARGUMENTS` and replace the engine's port in its output.

`hostile_attach.py PYTHON PORT FILE ARGUMENTS...` prints PORT and writes the true port to FILE;
standard library only.
"""

import json
import subprocess
import sys
from pathlib import Path


def main() -> int:
    python, port, port_file, *arguments = sys.argv[1:]
    done = subprocess.run([python, *arguments], stdout=subprocess.PIPE, check=False)
    for line in done.stdout.decode().splitlines():
        output = line
        if line.startswith("{") and '"port"' in line:
            handshake = json.loads(line)
            Path(port_file).write_text(str(handshake["port"]))
            output = json.dumps(handshake | {"port": int(port)})
        print(output)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
