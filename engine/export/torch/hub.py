"""A finished export onto the Hugging Face hub, or whatever HF_ENDPOINT names."""

from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from engine.protocol.problems import Refused


def push(folder: Path, name: str, token: str) -> str:
    """Make ORG/NAME (private, where it is new) and upload every file; returns its address.

    Raises Refused with the hub's own words, without the token.
    """
    hub = HfApi(token=token)
    try:
        hub.create_repo(name, private=True, exist_ok=True)
        hub.upload_folder(folder_path=folder, repo_id=name, commit_message="Export from Atelier")
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise Refused.of(
            "export.not_pushed",
            f"The hub did not take it: {_words(error, token)}",
            "The export itself is there. Check the name, and that the token may write.",
        ) from None
    return f"{hub.endpoint}/{name}"


def _words(error: Exception, token: str) -> str:
    lines = str(error).replace(token, "…").strip().splitlines() or [type(error).__name__]
    return lines[0][:300]
