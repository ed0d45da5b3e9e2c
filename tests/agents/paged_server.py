"""MCP server over stdio with three pages of tools, whose calls return an empty text.

It writes its pid to a file name; with `--deaf` it ignores the end of its input and SIGTERM.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

PAGES = {None: ("first", "2"), "2": ("second", "3"), "3": ("third", None)}


def answer(request):
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "paged", "version": "1"},
            }
        case "tools/list":
            name, after = PAGES[(request.get("params") or {}).get("cursor")]
            page = {"tools": [{"name": name, "inputSchema": {"type": "object"}}]}
            return page if after is None else {**page, "nextCursor": after}
        case "tools/call":
            return {"content": [{"type": "text", "text": ""}]}
    return None


def serve():
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(request)
        response = (
            {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
        )
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **response}), flush=True)


if __name__ == "__main__":
    deaf = "--deaf" in sys.argv
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(f"paged-{os.getpid()}").touch()
    while deaf:
        time.sleep(600)
    serve()
