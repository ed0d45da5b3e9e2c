"""Sample data for the gallery and for widget tests, like the run in the design mock-ups."""

import numpy as np

STEPS = np.arange(46)
GROUPS = (
    ("Dana\u2019s Lisbon flight", [0.12, 0.42, 0.5, 0.55, 0.66, 0.78, 0.84, 0.92], "8/8", "faint"),
    ("Q3 hotel invoice total", [0.22, 0.38, 0.42, 0.52, 0.68, 0.7, 0.75, 0.81], "8/8", "faint"),
    ("Who approved the NDA?", [0.94] * 8, "no signal", "warn"),
    ("Parking at the Oslo office", [0.3, 0.31, 0.58, 0.6, 0.66], "judging 5/8", "faint"),
    ("Refund for order 8841", [0.05] * 8, "no signal", "warn"),
    ("Board deck final version", [0.45, 0.74], "turn 4 \u00b7 2/8", "faint"),
    ("Nadia\u2019s new number", [0.93] * 8, "no signal", "warn"),
    ("Contract end date, Halden", [], "turn 1 \u00b7 0/8", "faint"),
)


def rng() -> np.random.Generator:
    """Return a generator with a fixed seed."""
    return np.random.default_rng(7)


def reward(count: int = 46) -> np.ndarray:
    """A learning curve from 0.25 to 0.7 with noise."""
    x = np.linspace(0, 1, count)
    return 0.25 + 0.43 * (1 - np.exp(-2.6 * x)) / 0.926 + rng().normal(0, 0.045, count)


def parts(count: int = 46) -> dict[str, np.ndarray]:
    """Return the reward parts judge, sources, answer and turn cost."""
    x, noise = np.linspace(0, 1, count), rng()
    return {
        "judge": 0.16 + 0.29 * x**0.7 + noise.normal(0, 0.016, count),
        "sources": 0.06 + 0.1 * x**0.5 + noise.normal(0, 0.01, count),
        "answer": 0.1 + 0.12 * x**0.8 + noise.normal(0, 0.01, count),
        "turn cost": -0.03 + noise.normal(0, 0.012, count),
    }
