"""Discovery of model servers on this machine: only the usual ports on loopback are queried."""

import asyncio
from typing import Any, NamedTuple

import httpx

from engine.protocol.records.judging import JudgeOption

PATIENCE_S = 0.7


class Server(NamedTuple):
    """Kind of local model server (such as Ollama) and its default address."""

    title: str
    port: int
    list_path: str


USUAL = (
    Server("Ollama", 11434, "/api/tags"),
    Server("LM Studio", 1234, "/v1/models"),
    Server("vLLM", 8000, "/v1/models"),
    Server("llama.cpp", 8080, "/v1/models"),
)


async def find_judges(servers: tuple[Server, ...] = USUAL) -> list[JudgeOption]:
    """Return every model that an LLM server on loopback offers, as a possible judge."""
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False, verify=False) as http:
        found = await asyncio.gather(*(_ask(http, server) for server in servers))
    return [option for options in found for option in options]


async def _ask(http: httpx.AsyncClient, server: Server) -> list[JudgeOption]:
    base = f"http://127.0.0.1:{server.port}"
    try:
        answer = (await http.get(base + server.list_path)).raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return []  # nobody there, or something else
    where = f"{server.title} on this machine"
    if server.list_path == "/api/tags":
        names = _names(answer, "models", "name")
        return [
            JudgeOption(model=f"ollama_chat/{n}", title=n, base_url=base, where=where)
            for n in names
        ]
    names = _names(answer, "data", "id")
    return [
        JudgeOption(model=f"openai/{n}", title=n, base_url=f"{base}/v1", where=where) for n in names
    ]


def _names(answer: Any, rows: str, key: str) -> list[str]:
    listed = answer.get(rows) if isinstance(answer, dict) else None
    return [str(row[key]) for row in listed or [] if isinstance(row, dict) and row.get(key)]
