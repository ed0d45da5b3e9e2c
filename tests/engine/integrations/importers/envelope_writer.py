"""Write version 2 of ART's Parquet, column by column as in OpenPipe/ART pull request 762: no
release of ART that writes it can be installed yet. Run by the Python of the `parquet` environment.

argv: the file. stdin: a JSON list of [group, [trajectory, …]], each in the form of ART's JSON.
"""

import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq

MESSAGE = pa.struct(
    [(name, pa.string()) for name in ("role", "content", "tool_calls", "tool_call_id")]
    + [("trainable", pa.bool_())]
)
SCHEMA = pa.schema(
    [
        ("format_version", pa.int16()),
        ("group_index", pa.int64()),
        ("trajectory_index", pa.int64()),
        ("group_json", pa.large_string()),
        ("trajectory_json", pa.large_string()),
        ("group_metadata", pa.string()),
        ("group_metrics", pa.string()),
        ("group_logs", pa.list_(pa.string())),
        ("reward", pa.float64()),
        ("metrics", pa.string()),
        ("metadata", pa.string()),
        ("tools", pa.string()),
        ("logs", pa.list_(pa.string())),
        ("messages", pa.list_(MESSAGE)),
    ],
    metadata={b"art.trajectory_parquet.version": sys.argv[2].encode()},
)


def main() -> None:
    rows = []
    for number, (group, trajectories) in enumerate(json.load(sys.stdin)):
        common = {"format_version": 2, "group_index": number, "group_json": json.dumps(group)}
        for index, one in enumerate(trajectories):
            body = {"trajectory_index": index, "trajectory_json": json.dumps(one)}
            rows.append(common | body | {"reward": one.get("reward")})
        if not trajectories:
            rows.append(common)
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sys.argv[1], compression="zstd")


if __name__ == "__main__":
    main()
