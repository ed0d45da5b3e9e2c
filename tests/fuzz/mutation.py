"""Random mutations of bytes: flips, cuts, repeats, splices and values that break parsers."""

import random
from collections.abc import Callable, Sequence

TOKENS = (
    b"../",
    b"..\\",
    b"/etc/passwd",
    b"~/",
    b"C:\\",
    b"\0",
    b"\r",
    b"\n",
    b"\x1b]0;x\x07",
    b"\xe2\x80\xae",
    b"\xed\xa0\x80",
    b"\xff\xfe",
    b"NaN",
    b"Infinity",
    b"-1e400",
    b"1e309",
    b"-1",
    b"0",
    b"9223372036854775808",
    b"9" * 400,
    b"null",
    b"true",
    b'""',
    b"[]",
    b"{}",
    b"{{",
    b"}}",
    b"{%",
    b"[" * 300,
    b'{"a":' * 300,
    b"%s",
    b"$(id)",
    b"`id`",
    b'"',
    b"'",
    b"\\",
    b"\\u0000",
    b"\\ud800",
)
"""Values that have broken parsers before."""
LONGEST = 2**20
"""Size limit of an input in bytes."""


def mutate(seed: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Apply one to eight random changes to `seed`; parts of `others` may be spliced in."""
    data = bytearray(seed)
    for _ in range(1 + int(rng.expovariate(0.6)) % 8):
        rng.choice(CHANGES)(data, rng)
    if others and rng.random() < 0.1:
        other = rng.choice(others)
        data = data[: _place(data, rng)] + other[_place(other, rng) :]
    return bytes(data[:LONGEST])


def _place(data: bytes | bytearray, rng: random.Random) -> int:
    return rng.randint(0, len(data))


def _flip_bit(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_byte(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _cut(data: bytearray, rng: random.Random) -> None:
    start = _place(data, rng)
    del data[start : start + rng.choice((1, 2, 8, 64, len(data)))]


def _repeat(data: bytearray, rng: random.Random) -> None:
    start = _place(data, rng)
    piece = data[start : start + rng.choice((1, 4, 32, 256))]
    data[start:start] = piece * rng.choice((1, 2, 50))


def _insert_token(data: bytearray, rng: random.Random) -> None:
    start = _place(data, rng)
    data[start:start] = rng.choice(TOKENS)


def _overwrite_token(data: bytearray, rng: random.Random) -> None:
    start, token = _place(data, rng), rng.choice(TOKENS)
    data[start : start + len(token)] = token


def _replace_number(data: bytearray, rng: random.Random) -> None:
    """Replace a run of digits by another value."""
    start = _place(data, rng)
    while start < len(data) and not 48 <= data[start] <= 57:
        start += 1
    end = start
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    if end > start:
        data[start:end] = rng.choice(TOKENS[12:23])


def _swap(data: bytearray, rng: random.Random) -> None:
    a, b, size = _place(data, rng), _place(data, rng), rng.choice((1, 8, 64))
    first, second = bytes(data[a : a + size]), bytes(data[b : b + size])
    data[a : a + len(second)], data[b : b + len(first)] = second, first


CHANGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip_bit,
    _set_byte,
    _cut,
    _repeat,
    _insert_token,
    _overwrite_token,
    _replace_number,
    _swap,
)
