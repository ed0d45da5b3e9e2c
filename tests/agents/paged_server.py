"""An MCP server over stdio that lists its tools on three pages; a call has an empty text for an
answer. It says where it runs; with `--deaf` it hears neither the end of its input nor SIGTERM."""

import json
import os
import signal
import sys
import time
from pathlib import Path

PAGES = {None: ("first", "2"), "2": ("second", "3"), "3": ("third", None)}


def answer(asked):
    match asked["method"]:
        case "initialize":
            return {
                "protocolVersion": asked["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "paged", "version": "1"},
            }
        case "tools/list":
            name, after = PAGES[(asked.get("params") or {}).get("cursor")]
            page = {"tools": [{"name": name, "inputSchema": {"type": "object"}}]}
            return page if after is None else {**page, "nextCursor": after}
        case "tools/call":
            return {"content": [{"type": "text", "text": ""}]}
    return None


def serve():
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        found = answer(asked)
        said = {"result": found} if found else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)


if __name__ == "__main__":
    deaf = "--deaf" in sys.argv
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(f"paged-{os.getpid()}").touch()
    while deaf:
        time.sleep(600)
    serve()
