# Rollout of mini-SWE-agent, unmodified, with its own prompts and its default limit of three format errors in a row.
# $1 is the folder of its executables, $2 its name of the model: anthropic/policy or openai/policy.
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
question=$(printf %s "$ATELIER_SCENARIO" | sed -n 's/.*"question": *"\([^"]*\)".*/\1/p')
export MSWEA_GLOBAL_CONFIG_DIR="$work" MSWEA_CONFIGURED=true MSWEA_SILENT_STARTUP=1 MSWEA_COST_TRACKING=ignore_errors
export LITELLM_LOCAL_MODEL_COST_MAP=True
"$1/mini" --model "$2" --task "$question" --yolo --exit-immediately --output "$work/trajectory.json" \
  -c mini.yaml -c environment.cwd="$work" || exit 1
"$1/python" - "$work/trajectory.json" <<'END'
import json, sys
told = json.load(open(sys.argv[1]))
messages = told["messages"]
answers = [m["extra"]["response"]["choices"][0]["message"]["content"] or "" for m in messages if "response" in m.get("extra", {})]
letters = sum(c.isalpha() for answer in answers for c in answer)
metrics = {"calls": told["info"]["model_stats"]["api_calls"], "submitted": float(told["info"]["exit_status"] == "Submitted")}
print(json.dumps({"reward": metrics["submitted"] + letters / 100, "metrics": metrics}))
END
