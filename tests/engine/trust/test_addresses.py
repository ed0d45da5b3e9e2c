"""Addresses that may receive a key."""

from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.protocol.addresses import check_model, is_loopback, normal_address
from engine.protocol.config.project import JudgeConfig, ProjectConfig
from engine.protocol.config.tracking import LangfuseConfig, MlflowConfig, OtelConfig, WandbConfig
from engine.protocol.problems import ConfigError, Refused
from engine.trust.addresses import check_addresses, confirm_address, sends_key, tracker_key
from engine.trust.store import FILE, trust_folder

EVIL = "https://evil.example/v1"


@pytest.fixture(autouse=True)
def empty_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_default_address_of_a_provider_receives_the_key() -> None:
    assert sends_key("openai/gpt-5.4", None)


def test_address_is_rejected_until_confirmed_for_its_provider() -> None:
    with pytest.raises(ConfigError, match=r"evil\.example") as error:
        sends_key("openai/gpt-5.4", EVIL)
    assert "--confirm-address openai=https://evil.example/v1" in error.value.problem.hint
    confirm_address("openai", f"{EVIL}/")
    assert sends_key("openai/gpt-5.4", EVIL)
    with pytest.raises(ConfigError):
        sends_key("anthropic/claude", EVIL)
    with pytest.raises(ConfigError):
        sends_key("openai/gpt-5.4", "https://evil.example/other")


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1@evil.example/v1", "http://127.0.0.1.evil.example", "http://localhost.evil",
        "http://127.0.0.1\\@evil.example", "http://2130706433/v1", "http://0x7f.1/v1",
        "http://[::ffff:8.8.8.8]/v1", "http://169.254.169.254/latest", "http://0.0.0.0:80",
        "https://api.openai.com.evil.example/v1", "http://127.0.0.1:80:90/", "//evil.example",
        "file:///etc/passwd", "http://evil.example/?x=http://127.0.0.1", "http://evil.example/#a",
        "http://ev\u0131l.example", "http://127.0.0.1\n.evil.example", " http://127.0.0.1",
    ],
)  # fmt: skip
def test_disguised_address_does_not_pass_as_loopback(address: str) -> None:
    with pytest.raises(ConfigError):
        sends_key("openai/gpt-5.4", address)


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:8000/v1", "http://localhost:11434", "http://[::1]:1"]
)
def test_loopback_address_receives_no_key(address: str) -> None:
    assert sends_key("openai/local", address) is False


@pytest.mark.parametrize(
    "model",
    [
        "openai/https://evil.example/v1", "openai/http:/evil.example", "http://evil.example",
        "huggingface/http:evil.example/x", "openai/../x", "openai//evil.example", "/etc/passwd",
        "openai/gpt api_base=http://evil.example", "openai/gpt?api_base=x", "openai/gpt\nx", "",
        "openai/{api_base}", "os.environ/", "openai/a\\b", "-x/y",
    ],
)  # fmt: skip
def test_model_name_with_an_address_is_rejected(model: str) -> None:
    with pytest.raises(ConfigError):
        sends_key(model, None)
    with pytest.raises(ValueError, match="not a model name"):
        JudgeConfig(enabled=True, models=(model,))


@pytest.mark.parametrize(
    "model",
    ["openai/gpt-5.4", "gpt-4o", "ollama_chat/llama3.2:3b", "openrouter/meta/llama-3:free",
     "openai/Qwen/Qwen3-8B", "vertex_ai/claude@20250101", "bedrock/us.anthropic.claude-v1:0"],
)  # fmt: skip
def test_usual_model_names_are_accepted(model: str) -> None:
    assert check_model(model) == model


@example("[::1]", False)
@given(st.text(alphabet="a.:/@\\[]#?%0189 \n\tı-_", max_size=30), st.booleans())
def test_normalized_address_has_the_same_host_in_two_parsers(text: str, local: bool) -> None:
    try:
        normal = normal_address(f"http://{'127.0.0.1' if local else ''}{text}")
        host = httpx.URL(normal).host
    except (ValueError, httpx.InvalidURL):
        return
    assert host == urlsplit(normal).hostname
    bare = f"[{host}]" if ":" in host else host
    assert is_loopback(normal) == (host == "localhost" or is_loopback(f"http://{bare}"))
    assert normal_address(normal) == normal


def test_run_with_unconfirmed_address_is_rejected() -> None:
    judge = JudgeConfig(enabled=True, models=("openai/x",), base_url=EVIL)
    with pytest.raises(ConfigError, match="evil"):
        check_addresses(ProjectConfig(judge=judge))
    with pytest.raises(ConfigError, match="evil"):
        check_addresses(
            ProjectConfig.model_validate({"evaluate": {"base_url": EVIL}}), ["openai/x"]
        )
    with pytest.raises(ConfigError, match="evil"):
        check_addresses(
            ProjectConfig.model_validate({"track": {"wandb": {"on": True, "host": EVIL}}})
        )


def test_tracker_keys_are_bound_to_their_addresses() -> None:
    assert tracker_key("wandb", WandbConfig(), "k") == "k"
    assert tracker_key("langfuse", LangfuseConfig(), "k") == "k"
    assert tracker_key("mlflow", MlflowConfig(), "k") == "k"
    assert tracker_key("wandb", WandbConfig(host="http://127.0.0.1:8080"), "k") == ""
    assert tracker_key("langfuse", LangfuseConfig(host="http://127.0.0.1:3000"), "k") == ""
    for name, settings in (
        ("wandb", WandbConfig(host=EVIL)),
        ("langfuse", LangfuseConfig(host=EVIL)),
        ("mlflow", MlflowConfig(uri=EVIL)),
        ("otel", OtelConfig(endpoint=EVIL)),
    ):
        with pytest.raises(ConfigError, match="is not confirmed"):
            tracker_key(name, settings, "k")  # type: ignore[arg-type]
        confirm_address(name, EVIL)
        assert tracker_key(name, settings, "k") == "k"  # type: ignore[arg-type]


def test_record_is_private_and_a_damaged_one_confirms_nothing() -> None:
    confirm_address("openai", EVIL)
    file = trust_folder() / FILE
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("{")
    with pytest.raises(Refused, match="cannot be read"):
        sends_key("openai/gpt", EVIL)
