"""Fuzz targets for all readers of external bytes, and their runner.

`python -m tests.fuzz NAME --seconds 600` runs one target (`all` runs each in turn); pytest gives
each target a short pass. A target is a module in `tests/fuzz/targets` with

- `REFUSALS`: the exceptions by which its subject refuses bad input cleanly;
- `execute(data)`: feed one input to the subject (a function or a coroutine function). With a second
  parameter, `execute(data, folder)`, it gets an empty folder, the only place where it may write;
- either `STRATEGY`, a hypothesis strategy for `data`, or `seeds()`, valid inputs as bytes, that are
  mutated by `tests.fuzz.mutation.mutate`, or by the module's own `mutate(seed, rng)`.

Optional: `SLOW_S`, seconds from which an execution counts as a hang (1 by default), and `close()`,
called at the end.
"""
