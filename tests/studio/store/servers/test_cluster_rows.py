"""Rows of clusters, and what Setup says about the chosen one."""

from typing import Any

from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.machine.backends import ignored
from engine.protocol.requests.clusters import ClusterView
from studio.store.projects.backends import CLUSTERS, checks, notes
from studio.store.servers.cluster_rows import models_words, row_of, sending_words
from tests.studio.fakes.clusters import HOSTED, REPORT, TUNNEL, WRONG_KEY
from tests.studio.fakes.made_backends import GPU_ENGINE


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
