"""Known advisories of everything that is locked, asked of PyPI by pip-audit."""

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
"""The first versions without the advisories that were found in these locks."""


def pins(lock: Path) -> list[tuple[str, str]]:
    return [(found[1], found[2]) for found in PIN.finditer(lock.read_text())]


@pytest.mark.parametrize("lock", sorted(LOCKS.glob("*.txt")), ids=lambda lock: lock.stem)
def test_no_lock_goes_back_behind_a_fixed_version(lock: Path) -> None:
    for name, version in pins(lock):
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
        assert numbers >= FIXED.get(name, ()), f"{lock.name}: {name} {version}"


@pytest.mark.long
def test_no_locked_package_has_a_known_advisory(tmp_path: Path) -> None:
    """Skipped where the advisories cannot be asked for, and never passed instead."""
    environment = tmp_path / "auditor"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "pip"), "install", "--quiet", AUDITOR]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{AUDITOR} cannot be installed here: {done.stderr[-200:]}")
    wanted = sorted({pin for lock in LOCKS.glob("*.txt") for pin in pins(lock)})
    found, unknown = {}, 0
    for name, version in wanted:
        asked = tmp_path / "requirements.txt"
        asked.write_text(f"{name}=={version}\n")
        command = [str(environment / "bin" / "pip-audit"), "--no-deps", "--disable-pip"]
        command += ["--progress-spinner=off", "--format=json", "-r", str(asked)]
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
                found[f"{name} {version}"] = [one["id"] for one in row["vulns"]]
        if unknown == 5 and not found and len(wanted) > 5:
            pytest.skip(f"the advisory service knows nothing here: {rows[0]['skip_reason']}")
    print(f"{len(wanted)} packages, {unknown} unknown to the service, {len(found)} with advisories")
    assert not found
