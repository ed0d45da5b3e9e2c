"""Pytest plugin for `bootstrap.py mutants`, in place of the conftest files: hypothesis uses the
same examples for every mutant, without shrinking."""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "mutants",
    database=None,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("mutants")
