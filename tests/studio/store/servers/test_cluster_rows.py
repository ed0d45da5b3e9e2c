"""Rows of clusters, and what Setup says about the chosen one."""

from typing import Any

import pytest

from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.machine.backends import ignored
from engine.protocol.requests.clusters import ClusterView
from studio.store.projects.backends import CLUSTERS, checks, notes
from studio.store.servers.cluster_rows import kind_of, models_words, row_of, sending_words
from tests.studio.fakes.clusters import (
    COMMAND,
    HOSTED,
    OUT_OF_MEMORY,
    REPORT,
    SKYRL,
    TUNNEL,
    WRONG_KEY,
    server_of,
)
from tests.studio.fakes.made_backends import GPU_ENGINE
from tests.studio.fakes.servers import PASSPHRASE, view


def config(**backend: Any) -> ProjectConfig:
    train = {"groups": 4, "group_size": 6, "max_tokens": 2000}
    return ProjectConfig.model_validate({"backend": backend, "train": train})


def test_row_shows_the_last_test() -> None:
    assert row_of(ClusterView(spec=HOSTED), False).words == "not tested"
    assert row_of(ClusterView(spec=HOSTED), True).dot == "connecting"
    good = row_of(ClusterView(spec=HOSTED, report=REPORT), False)
    assert (good.words, good.dot) == ("serves 3 models", "connected")
    assert good.facts == f"{HOSTED.address} · tinker 0.38.0"
    bad = row_of(ClusterView(spec=TUNNEL, problem=WRONG_KEY), False)
    assert (bad.dot, bad.problem) == ("gone", f"{WRONG_KEY.message} {WRONG_KEY.hint}")
    assert bad.facts == f"{TUNNEL.address} · Tinker 0.24 (SkyRL 0.3)"


def test_long_list_of_models_is_cut() -> None:
    many = REPORT.model_copy(update={"models": REPORT.models * 5})
    lines = models_words(many).splitlines()
    assert (len(lines), lines[0]) == (13, "Qwen/Qwen3-8B · 32,768 tokens")
    assert lines[-1] == "and 3 more"
    twelve = REPORT.model_copy(update={"models": REPORT.models * 4})
    assert models_words(twelve).splitlines()[-1] == "meta-llama/Llama-3.3-70B-Instruct"


def test_setup_says_what_leaves_this_machine() -> None:
    words, short = sending_words(ClusterView(spec=HOSTED), "hosted", config(cluster="hosted"))
    assert short == "Tokens are sent to tinker.example"
    assert "hosted samples and trains at tinker.example" in words
    assert "up to 48,000 tokens per turn there (4 groups × 6 rollouts × 2,000 tokens)" in words


def test_settings_of_this_machine_have_no_effect_on_a_cluster() -> None:
    chosen = config(cluster="hosted", sampler="vllm", processes=2, share_card=True)
    assert set(ignored(chosen)) == {"backend.sampler", "backend.processes", "backend.share_card"}
    found = notes(chosen, GPU_ENGINE, ClusterView(spec=HOSTED))
    assert found["backend.sampler"].words == "No effect: the server of hosted decides."
    assert found["backend.weights"].words == "hosted decides."
    assert checks(found) == [
        ("warn", "Sampler has no effect"),
        ("warn", "Number of trainers has no effect"),
        ("warn", "Sharing the GPU has no effect"),
        ("open", "Tokens are sent to tinker.example"),
    ]
    assert set(found) == set(notes(config(), GPU_ENGINE))


def test_unknown_cluster_is_reported_before_training() -> None:
    found = notes(config(cluster="gone"), GPU_ENGINE)
    assert checks(found) == [("bad", "No cluster gone")]
    assert found["backend.cluster"].link == CLUSTERS


HERE = SKYRL.model_copy(update={"host": ""})
BOX = view(state="connected")


def skyrl(state: str, **values: Any) -> ClusterView:
    return ClusterView(spec=SKYRL, server=server_of(SKYRL, state, **values))


@pytest.mark.parametrize(
    ("state", "words", "dot", "verb"),
    [
        ("off", "off", "none", "start"),
        ("installing", "installing SkyRL on box…", "connecting", "stop"),
        ("starting", "starting on box…", "connecting", "stop"),
        ("running", "running on box", "connected", "stop"),
        ("restarting", "restarting on box…", "reconnecting", "stop"),
        ("failed", "failed on box", "gone", "start"),
    ],
)
def test_row_of_skyrl_shows_its_state(state: str, words: str, dot: str, verb: str) -> None:
    row = row_of(skyrl(state), False, BOX)
    assert (row.words, row.dot) == (words, dot)
    assert row.actions & {"start", "stop"} == {verb}
    assert ("test" in row.actions) == (state == "running")
    assert row.facts == "Qwen/Qwen3-8B · port 8123 on box"
    assert row.command == COMMAND
    assert "copy" not in row_of(skyrl(state, command=""), False, BOX).actions


def test_running_skyrl_shows_its_connection_test() -> None:
    running = skyrl("running")
    tested = row_of(running.model_copy(update={"report": REPORT}), False, BOX)
    assert (tested.words, tested.dot) == ("running · serves 3 models", "connected")
    failed = row_of(running.model_copy(update={"problem": WRONG_KEY}), False, BOX)
    assert (failed.words, failed.dot) == ("running · connection failed", "gone")
    assert failed.problem.startswith(WRONG_KEY.message)
    here = ClusterView(spec=HERE, server=server_of(HERE, "running"))
    assert row_of(here, False).words == "running on this machine"


def test_failed_skyrl_shows_why_and_the_end_of_its_log() -> None:
    detail = "\n".join(f"line {number}" for number in range(9)) + "\n\n" + "x" * 500
    problem = OUT_OF_MEMORY.model_copy(update={"detail": detail})
    row = row_of(skyrl("failed", problem=problem), False, BOX)
    log = "Log on box: /home/mara/.atelier-engine/skyrl/skyrl.log"
    assert row.problem == f"{problem.message} {problem.hint} {log}"
    lines = row.log.splitlines()
    assert lines[:2] == ["line 7", "line 8"]
    assert [len(line) for line in lines[2:]] == [160]
    restarting = row_of(skyrl("restarting", problem=problem), False, BOX)
    assert restarting.problem.startswith(problem.message)
    assert not restarting.log


def test_row_names_a_server_that_is_not_connected() -> None:
    unknown = ClusterView(spec=SKYRL)
    for host, words, dot, connects in (
        (view(), "box is not connected", "none", True),
        (view(state="connecting"), "connecting to box…", "connecting", False),
        (view(state="asking", questions=[PASSPHRASE]), "box: asks for a passphrase", "asking",
         False),
        (view(state="reconnecting", failures=1), "reconnecting to box…", "reconnecting", True),
        (view(state="stopped", problem=WRONG_KEY), "box is not connected", "none", True),
        (None, "box is not in the list of servers", "gone", False),
    ):  # fmt: skip
        row = row_of(unknown, False, host)
        assert (row.words, row.dot) == (words, dot)
        assert row.actions == ({"connect"} if connects else set())
    loading = row_of(unknown, False, BOX)
    assert (loading.words, loading.actions) == ("state not loaded yet", frozenset())


def test_cluster_through_a_server_shows_both() -> None:
    through = ClusterView(spec=TUNNEL.model_copy(update={"host": "box"}), report=REPORT)
    assert row_of(through, False, view()).words == "box is not connected"
    row = row_of(through, False, BOX)
    assert (row.words, row.facts) == (
        "serves 3 models",
        "http://127.0.0.1:8000 on box · tinker 0.38.0",
    )
    assert row.actions == {"test"}
    words, short = sending_words(through, "lab", config(cluster="lab"))
    assert "lab samples and trains on box." in words
    assert short == "Tokens are sent to box"
    secure = ClusterView(spec=HOSTED.model_copy(update={"host": "box"}))
    words, short = sending_words(secure, "hosted", config(cluster="hosted"))
    assert "trains at tinker.example, reached through box." in words
    assert short == "Tokens are sent to tinker.example"


def test_header_names_skyrl_and_its_machine() -> None:
    running = skyrl("running")
    assert kind_of(running, placed=True) == "SkyRL on box"
    assert kind_of(running, placed=False) == "SkyRL"
    assert kind_of(ClusterView(spec=HERE), placed=True) == "SkyRL on this machine"
    through = ClusterView(spec=TUNNEL.model_copy(update={"host": "box"}))
    assert kind_of(through, placed=True) == "cluster on box"
    assert kind_of(ClusterView(spec=TUNNEL), placed=True) == "cluster"
    assert kind_of(None, placed=True) == "cluster"


def test_setup_says_where_skyrl_is_and_whether_it_runs() -> None:
    chosen = config(cluster="skyrl")
    words, short = sending_words(skyrl("running"), "skyrl", chosen)
    assert words.startswith("Tokens leave this machine: skyrl samples and trains on box. ")
    assert short == "Tokens are sent to box"
    words, short = sending_words(skyrl("off"), "skyrl", chosen)
    assert words.endswith("SkyRL is off there: start it in Settings.")
    assert short == "Tokens are sent to box, SkyRL is off"
    note = notes(chosen, GPU_ENGINE, skyrl("failed"))["backend.cluster"]
    assert (note.tone, note.link) == ("warn", CLUSTERS)
    assert notes(chosen, GPU_ENGINE, skyrl("running"))["backend.cluster"].tone == "info"
    here = ClusterView(spec=HERE, server=server_of(HERE, "starting"))
    words, short = sending_words(here, "skyrl", chosen)
    assert words.startswith("Tokens stay on this machine: skyrl samples and trains with SkyRL")
    assert "are sent" not in words
    assert short == "SkyRL on this machine, SkyRL is starting"
