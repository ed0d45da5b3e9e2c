"""All measurements of `bench`, in the order in which they are printed."""

import time
from collections.abc import Sequence
from pathlib import Path

from engine.bench.atelier import Atelier, per_turn
from engine.bench.compare import Bench, Growth, MultiTurn, Report, Say
from engine.bench.work import Shape, multi_turn, prompts, rewards
from engine.models.file_checks import read_json
from engine.policy.base import AdamStep, TrainBatch, TrainItem
from engine.protocol.config.algorithm import Algorithm, NoCorrection
from engine.rollout.rendering.chat import ChatFormat
from engine.runtime.closing import closing

GROWTH = {
    "group size": [Shape(256, 32, size, 1) for size in (2, 4, 8, 16)],
    "prompt": [Shape(length, 32, 8, 1) for length in (128, 256, 512, 1024)],
    "completion": [Shape(128, length, 8, 1) for length in (16, 32, 64, 128)],
}
TURNS, BASE, ANSWER, OBSERVATION, SIBLINGS = 8, 375, 38, 100, 4
"""A quarter of typical lengths: 1 500-token prompts, 150-token answers, 400-token observations."""


async def measure(
    *,
    model: Path,
    shapes: Sequence[Shape],
    dtype: str,
    repeats: int,
    trl: Path | None,
    growth: bool,
    scratch: Path,
    say: Say,
) -> Report:
    bench = Bench(model, dtype, scratch, repeats, say)
    words = plain_tokens(model)
    say("loading the model")
    async with closing(await Atelier.start(model, scratch, dtype)) as ours:
        replay, live = {}, {}
        for shape in shapes:
            batch = prompts(shape, words, 0)
            replay[shape.words] = await bench.compare(ours, shape, "replay", batch, trl)
            live[shape.words] = await bench.compare(ours, shape, "live", batch, trl)
        grown = [await _grow(ours, name, row, words, say) for name, row in GROWTH.items() if growth]
        turns = await _turns(ours, bench) if growth else None
    return Report(
        model=read_json(model / "config.json").get("_name_or_path") or model.name,
        device=ours.info.device,
        dtype=ours.info.dtype,
        repeats=repeats,
        replay=replay,
        live=live,
        growth=grown,
        multi_turn=turns,
    )


def plain_tokens(model: Path) -> list[int]:
    """Return up to 4000 token ids of whole words with a leading space (or of letters) that survive
    decoding and encoding unchanged."""
    count = read_json(model / "config.json")["vocab_size"]
    with ChatFormat(model) as chat:
        pieces = {n: chat.decode([n]) for n in range(count)}
        letters = [n for n, piece in pieces.items() if piece.isascii() and piece.strip().isalpha()]
        words = [n for n in letters if pieces[n].startswith(" ") and len(pieces[n]) > 3]
        kept = (words or letters)[:4000]
        return [n for n in kept if chat.encode(chat.decode([n, n])) == [n, n]]


async def _grow(
    ours: Atelier, name: str, shapes: Sequence[Shape], words: list[int], say: Say
) -> Growth:
    """Measure sampling and update while one dimension of the shape grows."""
    laps = []
    for shape in shapes:
        say(f"scaling with {name}: {shape.words}")
        laps.append(await ours.live(prompts(shape, words, 1), shape, rewards(shape, 1)))
    return Growth(
        name=name,
        shapes=[shape.words for shape in shapes],
        sample_s=[lap.sample_s for lap in laps],
        update_s=[lap.update_s for lap in laps],
    )


async def _turns(ours: Atelier, bench: Bench) -> MultiTurn:
    """Compare one prefix tree of a group of conversations with one row per turn."""
    vocabulary = read_json(bench.model / "config.json")["vocab_size"]
    attempts = multi_turn(vocabulary, BASE, TURNS, ANSWER, OBSERVATION, SIBLINGS, 0)
    rows = per_turn(attempts)
    bench.say("multi-turn: one row per turn")
    alone = await Atelier.start(bench.model, bench.scratch, bench.dtype, batch_tokens=64)
    ratios, tree_s, rows_s = [], [], []
    try:
        await alone.replay(attempts[:1])
        for repeat in range(min(bench.repeats, 2)):
            bench.say(f"multi-turn: step {repeat + 1}")
            tree_s.append((await ours.replay(attempts)).seconds)
            rows_s.append(await _update(alone, rows))
            ratios.append(rows_s[-1] / tree_s[-1])
    finally:
        await alone.close()
    return MultiTurn(
        turns=TURNS,
        prompt=BASE,
        answer=ANSWER,
        observation=OBSERVATION,
        group=SIBLINGS,
        tree_s=sorted(tree_s)[len(tree_s) // 2],
        rows_s=sorted(rows_s)[len(rows_s) // 2],
        ratio=sorted(ratios)[len(ratios) // 2],
    )


async def _update(ours: Atelier, items: list[TrainItem]) -> float:
    start_s = time.perf_counter()
    batch = TrainBatch(
        items=items,
        algorithm=Algorithm(correction=NoCorrection()),
        normaliser=sum(end - start for item in items for start, end in item.spans),
    )
    await ours.policy.forward_backward(batch)
    await ours.policy.optim_step(AdamStep(lr=1e-5))
    return time.perf_counter() - start_s
