"""Rows of four tables for the figures of a run, shared by all runs."""

from collections.abc import Mapping

from engine.bench.gpu.report import Table, gib, plain, rate, seconds, share, times, tiny


def tables(
    name: str, facts: Mapping[str, str], figures: Mapping[str, float], note: str
) -> list[Table]:
    """Tables of the run `name` from its measured `figures`, by name (a missing one is a dash), and
    `facts` (`trainer` and `sampler`, as text). `note` is shown below the table of exactness."""

    def row(**kinds: object) -> list[str]:
        return [show(figures.get(key)) for key, show in kinds.items()]  # type: ignore[operator]

    made = [
        Table(
            title="Seconds per step",
            head=["run", "step", "rollouts", "training", "publishing", "switch", "first", "load"],
            rows=[
                [
                    name,
                    *row(
                        step_s=seconds,
                        rollout_s=seconds,
                        train_s=seconds,
                        publish_s=seconds,
                        switch_s=seconds,
                        first_step_s=seconds,
                        load_s=seconds,
                    ),
                ]
            ],
            note="Medians of all steps but the first, which has its own column. Switch: time for "
            "vLLM to free and reclaim GPU memory; a dash if vLLM never frees it.",
        ),
        Table(
            title="Speed",
            head=[
                *("run", "sampled tokens/s", "trained tokens/s"),
                *("goodput, training", "hardware, training"),
                *("goodput, sampling", "hardware, sampling"),
            ],
            rows=[
                [
                    name,
                    *row(
                        sampled_tokens_per_s=rate,
                        trained_tokens_per_s=rate,
                        goodput_train_share=share,
                        hardware_train_share=share,
                        goodput_sample_share=share,
                        hardware_sample_share=share,
                    ),
                ]
            ],
            note="Shares of the peak rates measured above. A vLLM server does not report its "
            "utilization.",
        ),
        Table(
            title="Exactness and reward",
            head=[
                *("run", "trainer", "sampler", "largest log-prob gap, nats", "publish gap, nats"),
                *("first reward", "last reward"),
            ],
            rows=[
                [
                    name,
                    facts["trainer"],
                    facts["sampler"],
                    *row(
                        logprob_gap_max_nats=tiny,
                        publish_gap_nats=tiny,
                        reward_first=plain,
                        reward_last=plain,
                    ),
                ]
            ],
            note=f"{note}. A few steps show that training works, not that the model improves.",
        ),
    ]
    if "held_bytes" in figures:
        forecast = row(held_bytes=gib, forecast_bytes=gib, held_share=times)
        made.append(
            Table(
                title="GPU memory",
                head=["run", "peak", "forecast", "peak / forecast"],
                rows=[[name, *forecast]],
                note="Sampled from the driver (NVML) ten times per second, minus the memory in use "
                "before the run; summed over GPUs.",
            )
        )
    if "judge_calls" in figures:
        calls = f"{figures['judge_calls']:.0f}"
        made.append(
            Table(
                title="The judge",
                head=["run", "calls", "seconds per call", "rollouts and judging"],
                rows=[[name, calls, *row(judge_call_s=seconds, rollout_s=seconds)]],
                note="Groups are judged while others are still sampled, so the last column is the "
                "time of both.",
            )
        )
    return made
