"""Sandboxed agents of a real pool: what a hostile one tries stays inside, is named, and ends."""

import asyncio
import http.server
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.protocol.config.agent import AgentConfig
from engine.protocol.problems import ConfigError, RolloutError
from engine.rollout.agents.processes import AgentResult, Attempt
from engine.rollout.sandbox.machine import sandbox_check
from engine.rollout.sandbox.pool import agent_pool
from tests.engine.rollout.sandbox.conftest import Gateway
from tests.support.container_image import needs_podman, python_image
from tests.support.namespaces import needs_namespaces

pytestmark = [pytest.mark.timeout(120), needs_namespaces]

AGENT = '''
import errno, json, os, signal, socket, subprocess, sys, time, urllib.request

def tried(action):
    """Value of an action, or the name of the error that it raised."""
    try:
        return action()
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)

def rollout(scenario, model):
    return globals()[scenario["attack"]](scenario, model)

def reads(scenario, model):
    found = [tried(lambda path=path: open(path).read()[:50]) for path in scenario["paths"]]
    return told(found)

def told(value):
    print("RESULT " + json.dumps(value))
    return 1.0

def looks_around(scenario, model):
    if scenario["secret"]:
        for folder in (model.scratch, "/tmp", "/dev/shm"):
            open(folder + "/secret", "w").write(scenario["secret"])
        os.environ["SECRET"] = scenario["secret"]
        subprocess.Popen(["sleep", "60"])
        listening = socket.create_server(("127.0.0.1", 5000))
        urllib.request.urlopen(model.base_url + "/hold").read()
        return 1.0
    urllib.request.urlopen(model.base_url + "/wait").read()
    processes = [name for name in os.listdir("/proc") if name.isdigit()]
    found = [os.path.exists(f + "/secret") for f in (model.scratch, "/tmp", "/dev/shm")]
    port = tried(lambda: socket.create_connection(("127.0.0.1", 5000), 2))
    urllib.request.urlopen(model.base_url + "/go").read()
    return told([len(processes), found, port])

def connects(scenario, model):
    places = [tuple(one) for one in scenario["places"]]
    found = [tried(lambda place=place: socket.create_connection(place, 2)) for place in places]
    found.append(urllib.request.urlopen(model.base_url + "/models").read().decode())
    return told([str(one) for one in found])

def forks(scenario, model):
    for _ in range(2000):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    time.sleep(60)

def fills_disk(scenario, model):
    with open(model.scratch + "/large", "wb") as file:
        return told(tried(lambda: [file.write(bytes(2**20)) and file.flush() for _ in range(200)]))

def prints(scenario, model):
    subprocess.run(["head", "-c", str(500 * 10**6), "/dev/zero"])
    return 1.0

def leaves_children(scenario, model):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        os._exit(0)
    time.sleep(0.3)
    return 1.0

def tampers(scenario, model):
    project = os.getcwd()
    errors = [
        tried(lambda: open(project + "/rewards.py", "w")),
        tried(lambda: open(project + "/rewards.py").read()),
        tried(lambda: os.listdir(project + "/scenarios")),
        tried(lambda: open(project + "/agent.py", "a")),
        tried(lambda: open("/run/atelier/host_agent.py", "w")),
        tried(lambda: open("/proc/sys/kernel/core_pattern", "w")),
        tried(lambda: os.listdir(project + "/runs")),
        tried(lambda: open(project + "/scoring/hidden.py").read()),
    ]
    sys.modules["rewards"] = sys.modules[__name__]
    open(model.scratch + "/answer.txt", "w").write("wrong")
    return told(errors)

def solves(scenario, model):
    os.makedirs(model.scratch + "/deep")
    open(model.scratch + "/answer.txt", "w").write(scenario["answer"])
    os.symlink("/etc/passwd", model.scratch + "/deep/link") if scenario.get("link") else None
    return {"rewards": {"own": 0.25}, "metrics": {"files": 1}}

def stops_itself(scenario, model):
    os.kill(os.getpid(), signal.SIGSTOP)

def allocates(scenario, model):
    pids = []
    for _ in range(4):
        if os.fork() == 0:
            kept = bytearray(60 * 2**20)
            time.sleep(60)
            os._exit(0)
    time.sleep(60)

def spins(scenario, model):
    while True:
        pass

def escapes(scenario, model):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name, *arguments):
        failed = getattr(libc, name)(*arguments) < 0
        return errno.errorcode.get(ctypes.get_errno()) if failed else "done"

    return told([
        call("unshare", 0x10000000), call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        call("setns", 0, 0), call("chroot", b"/tmp"), call("ptrace", 16, 1, 0, 0),
        tried(lambda: os.kill(1, signal.SIGKILL)), os.getpid(),
        tried(lambda: os.setuid(12345)), tried(lambda: os.mknod("/tmp/disk", 0o60600, 0x800)),
    ])

def kills_itself(scenario, model):
    os.kill(os.getpid(), signal.SIGKILL)

def floods(scenario, model):
    port = int(model.base_url.rpartition(":")[2].partition("/")[0])
    kept = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(1000)]
    time.sleep(0.5)
    closed = 0
    for one in kept:
        one.setblocking(False)
        closed += tried(lambda: one.recv(1)) in (b"", "ECONNRESET")
    return told(closed)

def fetches(scenario, model):
    proxy = os.environ["HTTPS_PROXY"].rpartition(":")[2]
    answers = []
    for host in scenario["hosts"]:
        with socket.create_connection(("127.0.0.1", int(proxy)), 5) as one:
            one.sendall(("CONNECT %s HTTP/1.1\\r\\n\\r\\n" % host).encode())
            answer = one.recv(1000)
            if b" 200 " in answer:
                one.sendall(b"GET /through HTTP/1.0\\r\\n\\r\\n")
                answer = answer + one.makefile("rb").read()
            answers.append(answer.decode())
    return told(answers)
'''
SANDBOX: dict[str, Any] = {}
"""Settings of the sandbox of the current test."""
REWARDS = """
import os

def right(scenario, result, scratch):
    with open(os.path.join(scratch, "answer.txt")) as file:
        return float(file.read() == scenario.get("answer"))

def returned(scenario, result):
    return 0.5 if isinstance(result, dict) else None

def sees_scenarios(scenario, result):
    return float(os.path.exists("scenarios/train.jsonl"))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "scenarios").mkdir(parents=True)
    (folder / "scenarios" / "train.jsonl").write_text('{"answer": "42"}')
    (folder / "runs").mkdir()
    (folder / "runs" / "secret").write_text("of a run")
    (folder / "agent.py").write_text(AGENT)
    return folder


@pytest.fixture(
    params=["process", pytest.param("container", marks=[pytest.mark.long, needs_podman])],
    autouse=True,
)
def kind(request: pytest.FixtureRequest) -> str:
    """Kind of the sandbox, which `play` uses."""
    SANDBOX.clear()
    SANDBOX["sandbox"] = request.param
    if request.param == "container":
        SANDBOX["image"] = python_image()
    return str(request.param)


def play(
    project: Path, port: int, *scenarios: dict[str, Any], **settings: Any
) -> list[AgentResult | RolloutError]:
    """Results of these rollouts, run at once in one pool; nothing is left afterwards."""

    async def run() -> list[AgentResult | RolloutError]:
        pool = agent_pool(project, AgentConfig(**SANDBOX, **settings), project / "runs/log")
        await pool.start()
        try:
            address = f"http://127.0.0.1:{port}/v1"
            calls = [pool.run(Attempt(one, address, "key", "policy")) for one in scenarios]
            return await asyncio.gather(*calls, return_exceptions=True)  # type: ignore[return-value]
        finally:
            await pool.close()

    before = psutil.Process().children(recursive=True)
    results = asyncio.run(run())
    assert set(psutil.Process().children(recursive=True)) <= set(before)
    return results


def told(result: AgentResult | RolloutError) -> Any:
    """Value that the agent has printed after RESULT."""
    assert isinstance(result, AgentResult), result
    line = next(one for one in result.output.splitlines() if one.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


def code(result: AgentResult | RolloutError) -> str:
    assert isinstance(result, RolloutError), result
    return result.problem.code


def test_this_machine_offers_a_sandbox() -> None:
    check = sandbox_check()
    assert (check.name, check.state) == ("Sandbox", "good"), check


def test_secrets_of_this_machine_are_not_readable(
    project: Path, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-secret")
    key = tmp_path / "id_rsa"
    key.write_text("private")
    paths = [
        str(key), str(Path.home() / ".bashrc"), "/etc/shadow", f"/proc/{os.getpid()}/environ",
        str(project / "runs" / "secret"), str(project / "runs" / "log"), "/sys/kernel",
    ]  # fmt: skip
    (result,) = play(project, port, {"attack": "reads", "paths": [*paths, "/proc/self/environ"]})
    *found, environment = told(result)
    assert set(found) <= {"ENOENT", "EACCES", "EISDIR"}, found
    assert "sk-secret" not in environment


def test_rollouts_do_not_see_each_other(project: Path, port: int) -> None:
    Gateway.held.clear()
    Gateway.go.clear()
    first, second = play(
        project,
        port,
        {"attack": "looks_around", "secret": "s3cret"},
        {"attack": "looks_around", "secret": ""},
    )
    assert told(second) == [2, [False, False, False], "ECONNREFUSED"]
    assert isinstance(first, AgentResult)
    assert "ended what the agent left running: sleep" in first.output


def test_only_the_model_can_be_reached(project: Path, port: int) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Gateway) as other:
        places = [["127.0.0.1", other.server_port], ["192.0.2.1", 80], ["::1", other.server_port]]
        (result,) = play(project, port, {"attack": "connects", "places": places})
    here, away, six, answer = told(result)
    assert (here, away) == ("ECONNREFUSED", "ENETUNREACH")
    assert six in ("ECONNREFUSED", "EADDRNOTAVAIL", "ENETUNREACH")
    assert answer == "hello from /v1/models"


def test_allowed_hosts_are_reached_through_the_proxy(project: Path, port: int) -> None:
    hosts = [f"127.0.0.1:{port}", f"localhost:{port}", "example.org:443", f"127.0.0.1:{port + 1}"]
    (result,) = play(
        project, port, {"attack": "fetches", "hosts": hosts}, allowed_hosts=(f"127.0.0.1:{port}",)
    )
    allowed, *others = told(result)
    assert allowed.endswith("hello from /through")
    assert all(one.startswith("HTTP/1.1 403 ") for one in others)
    assert isinstance(result, AgentResult)
    assert "sandbox: refused example.org\n" in result.output


def test_connections_of_a_rollout_are_limited(project: Path, port: int) -> None:
    flood, calm = play(project, port, {"attack": "floods"}, {"attack": "connects", "places": []})
    assert 900 <= told(flood) <= 1000 - 64
    assert told(calm) == ["hello from /v1/models"]


@pytest.mark.parametrize(
    ("attack", "settings", "expected"),
    [
        ("forks", {"memory_mb": 32_000}, "sandbox.processes"),
        ("allocates", {"memory_mb": 128}, "sandbox.memory"),
        ("spins", {"cpu_s": 0.5}, "sandbox.cpu"),
        ("stops_itself", {"timeout_s": 2}, "agent.timeout"),
        ("kills_itself", {}, "agent.died"),
    ],
)
def test_limits_end_the_rollout_and_name_the_cause(
    project: Path, port: int, attack: str, settings: dict[str, Any], expected: str
) -> None:
    good = {"attack": "reads", "paths": []}
    result, neighbour = play(project, port, {"attack": attack}, good, **settings)
    assert code(result) == expected
    assert told(neighbour) == []


def test_full_disk_and_long_output_are_named(project: Path, port: int) -> None:
    full, long = play(project, port, {"attack": "fills_disk"}, {"attack": "prints"}, disk_mb=20)
    assert told(full) == "ENOSPC"
    assert isinstance(full, AgentResult)
    assert "sandbox: the scratch folder was full (20 MB)" in full.output
    assert isinstance(long, AgentResult)
    assert "sandbox: dropped 499000000 bytes of output" in long.output
    assert len(long.output) < 1_100_000


def test_left_processes_are_ended(project: Path, port: int) -> None:
    (result,) = play(project, port, {"attack": "leaves_children"})
    assert isinstance(result, AgentResult)
    assert "sandbox: ended what the agent left running: python" in result.output


def test_agent_cannot_escape(project: Path, port: int) -> None:
    (result,) = play(project, port, {"attack": "escapes"})
    *calls, killed, pid, user, device = told(result)
    assert calls == ["EPERM"] * 5
    assert (killed, pid) == (None, 2)  # the first process ignores it
    assert user in ("EINVAL", "EPERM")
    assert device == "EPERM"


def test_rewards_are_computed_outside(project: Path, port: int) -> None:
    (project / "scoring").mkdir()
    (project / "scoring" / "hidden.py").write_text(REWARDS)
    (project / "rewards.py").symlink_to("scoring/hidden.py")
    tampered, right, linked = play(
        project,
        port,
        {"attack": "tampers", "answer": "42"},
        {"attack": "solves", "answer": "42"},
        {"attack": "solves", "answer": "42", "link": True},
    )
    assert isinstance(tampered, AgentResult)
    writes, reads, scenarios, agent, host, kernel, runs, linked_file = told(tampered)
    assert {writes, agent, host, kernel} <= {"EROFS", "EACCES", "EPERM"}
    assert {reads, linked_file} <= {"EACCES", ""}
    assert scenarios == runs == []
    assert tampered.parts == {"rules": 1.0, "right": 0.0, "sees_scenarios": 1.0}
    assert isinstance(right, AgentResult)
    assert right.parts == {"own": 0.25, "right": 1.0, "returned": 0.5, "sees_scenarios": 1.0}
    assert right.metrics == {"files": 1}
    assert code(linked) == "sandbox.failed"  # links out of the folder are not unpacked


def test_agent_that_starts_threads_at_import_is_refused(project: Path, port: int) -> None:
    start = "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    text = f"import threading, time\n{start}\n"
    (project / "agent.py").write_text(text + "def rollout(scenario, model): return 1.0\n")
    with pytest.raises(ConfigError, match="starts threads"):
        play(project, port, {})


def test_command_runs_in_the_sandbox(project: Path, port: int) -> None:
    (project / "run.sh").write_text(
        'echo "$ATELIER_SCENARIO" > "$ATELIER_SCRATCH/seen"; ls /proc | grep -c "^[0-9]"; '
        "echo '{\"reward\": 0.5}'\n"
    )
    (result,) = play(project, port, {"text": "hi"}, command="sh run.sh")
    assert isinstance(result, AgentResult)
    assert result.parts == {"rules": 0.5}


OWNER = """
import asyncio, sys
from pathlib import Path
from engine.protocol.config.agent import AgentConfig
from engine.rollout.agents.processes import Attempt
from engine.rollout.sandbox.pool import agent_pool

async def main():
    folder = Path(sys.argv[1])
    pool = agent_pool(folder, AgentConfig(sandbox="process"), folder / "runs/log")
    await pool.start()
    attempt = Attempt({"attack": "stops_itself"}, "http://127.0.0.1:9/v1", "key", "policy")
    running = asyncio.create_task(pool.run(attempt))
    print("running", flush=True)
    await running

asyncio.run(main())
"""


def test_everything_ends_with_the_engine(project: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(project)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "running\n"
        family = psutil.Process(owner.pid).children(recursive=True)
        end = time.monotonic() + 20
        while len(family) < 5 and time.monotonic() < end:  # launcher, its child, host, and rollout
            time.sleep(0.02)
            family = psutil.Process(owner.pid).children(recursive=True)
        assert len(family) == 5, family
        owner.kill()
    assert psutil.wait_procs(family, timeout=10)[1] == []
