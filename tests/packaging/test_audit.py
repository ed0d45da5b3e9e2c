"""Known advisories of all locked packages, requested from PyPI by pip-audit."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

LOCKS = Path(__file__).parents[2] / "packaging" / "locks"
AUDITOR = "pip-audit==2.10.1"
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\+]+)[^ ;\\]*( ;.*?)?( \\)?$", re.M)
FIXED = {"litellm": (1, 83), "setuptools": (78, 1, 1)}
"""First versions without known advisories."""


def pins(lock: Path) -> list[tuple[str, str]]:
    return [(found[1], found[2]) for found in PIN.finditer(lock.read_text())]


@pytest.mark.parametrize("lock", sorted(LOCKS.glob("*.txt")), ids=lambda lock: lock.stem)
def test_locked_versions_are_not_older_than_fixes(lock: Path) -> None:
    for name, version in pins(lock):
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
        assert numbers >= FIXED.get(name, ()), f"{lock.name}: {name} {version}"


@pytest.mark.long
def test_no_locked_package_has_a_known_advisory(tmp_path: Path) -> None:
    """Skipped if the advisory service is not reachable."""
    environment = tmp_path / "auditor"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "pip"), "install", "--quiet", AUDITOR]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{AUDITOR} cannot be installed here: {done.stderr[-200:]}")
    packages = sorted({pin for lock in LOCKS.glob("*.txt") for pin in pins(lock)})
    advisories, unknown = {}, 0
    for name, version in packages:
        requirements = tmp_path / "requirements.txt"
        requirements.write_text(f"{name}=={version}\n")
        command = [str(environment / "bin" / "pip-audit"), "--no-deps", "--disable-pip"]
        command += ["--progress-spinner=off", "--format=json", "-r", str(requirements)]
        audited = subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**os.environ}
        )
        try:
            rows = json.loads(audited.stdout)["dependencies"]
        except ValueError:
            pytest.skip(f"the advisory service cannot be reached: {audited.stderr[-200:]}")
        for row in rows:
            unknown += "skip_reason" in row
            if row.get("vulns"):
                advisories[f"{name} {version}"] = [one["id"] for one in row["vulns"]]
        if unknown == 5 and not advisories and len(packages) > 5:
            pytest.skip(f"the advisory service knows nothing here: {rows[0]['skip_reason']}")
    print(
        f"{len(packages)} packages, {unknown} unknown to the service, "
        f"{len(advisories)} with advisories"
    )
    assert not advisories
