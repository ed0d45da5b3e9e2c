"""Whether this machine lets its users make namespaces, found without Atelier's own code."""

import shutil
import subprocess

import pytest

_COMMAND = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc"]
NAMESPACES = (
    shutil.which("unshare") is not None
    and subprocess.run([*_COMMAND, "true"], capture_output=True, check=False).returncode == 0
)
needs_namespaces = pytest.mark.skipif(
    not NAMESPACES, reason="this machine does not allow user namespaces"
)
