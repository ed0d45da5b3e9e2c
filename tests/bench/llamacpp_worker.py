"""llama.cpp with one GGUF file, run by the Python of the `llamacpp` environment.

argv: the file. stdin: one JSON object, `{"prompts": [[ids]], "texts": [str], "most_new": N}`;
stdout: `{"answers": [[ids]], "tokens": [[ids]]}`.
"""

import json
import sys
import urllib.request
from typing import Any

import xllamacpp


def main() -> None:
    request_fields = json.load(sys.stdin)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
    parameters.n_ctx = 4096
    parameters.n_parallel = 1
    server = xllamacpp.Server(parameters)

    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            server.listening_address + path,
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    options = {
        "n_predict": request_fields["most_new"],
        "temperature": 0,
        "samplers": ["top_k"],
        "top_k": 1,
        "return_tokens": True,
        "cache_prompt": False,
    }
    answers = [
        post("/completion", {"prompt": p, **options})["tokens"] for p in request_fields["prompts"]
    ]
    tokens = [
        post("/tokenize", {"content": text, "add_special": False, "parse_special": True})["tokens"]
        for text in request_fields["texts"]
    ]
    print(json.dumps({"answers": answers, "tokens": tokens}))


if __name__ == "__main__":
    main()
