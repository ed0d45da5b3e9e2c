"""Environment variables of programs that install packages: all but the keys of providers.

The rule is that of engine/runtime/variables.py, which cannot be imported before there are packages.
"""

import os
import re

SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)", re.I)
OF_INSTALLERS = ("PIP_", "UV_")


def without_secrets() -> dict[str, str]:
    """Our environment without the keys in it."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(OF_INSTALLERS) or SECRET.search(name) is None
    }


def drop_secrets() -> None:
    """Forget those keys, for this process and all that it starts."""
    for name in os.environ.keys() - without_secrets().keys():
        del os.environ[name]
