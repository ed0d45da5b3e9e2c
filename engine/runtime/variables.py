"""Environment variables of child processes: an allow-list without keys, tokens or paths to them."""

import os
import re
from collections.abc import Mapping

KEPT_VARIABLES = (
    *("PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    *("HF_HOME", "HF_ENDPOINT"),
)
"""Variables passed to children. XDG_RUNTIME_DIR is excluded, since the engine's discovery file with
its token lies there."""
KEPT_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "HF_HUB_", "OMP_", "MKL_")
SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)", re.I)
"""Names of variables that contain secrets: OPENAI_API_KEY, HF_TOKEN, AWS_SECRET_ACCESS_KEY …"""
OF_INSTALLERS = ("PIP_", "UV_")


def allowed_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for a child process: those of this process's variables that children may have
    (such as PATH and CUDA_*, but no secrets), and `extra`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT_VARIABLES
        or (name.startswith(KEPT_PREFIXES) and SECRET.search(name) is None)
    }
    return kept | dict(extra or {})


def without_secrets() -> dict[str, str]:
    """Variables of this process without secrets, for programs that install packages: these need
    proxies, certificates and the person's settings of pip."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(OF_INSTALLERS) or SECRET.search(name) is None
    }
