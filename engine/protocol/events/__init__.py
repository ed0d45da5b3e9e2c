"""Events of a run: past tense, frozen, discriminated by `kind`.

Importable by every package.
"""
