"""Virtual token strings: what a prompt holds, as runs of named parts instead of tokens.

A token is a part's name and its place in that part. Two strings agree as far as their runs do.
"""

from __future__ import annotations

from collections.abc import Hashable

from perfmodel.serving.sequence import Prefix

Run = tuple[Hashable, int, int]
"""A part's name, the place in it of the first token, and how many tokens follow from there."""
Runs = tuple[Run, ...]


def prompt_runs(prefix: Prefix, prompt: int, own: Hashable) -> Runs:
    """The tokens of a prompt: its parts, as far as it goes, then tokens of its own."""
    runs: list[Run] = []
    left = prompt
    for name, tokens in prefix:
        taken = min(tokens, left)
        if taken > 0:
            runs.append((name, 0, taken))
            left -= taken
    if left:
        runs.append((own, 0, left))
    return tuple(runs)


def cut(runs: Runs, start: int, stop: int) -> Runs:
    """The tokens from ``start`` up to ``stop``."""
    if start == 0 and len(runs) == 1 and runs[0][2] == stop:
        return runs
    kept: list[Run] = []
    at = 0
    for name, first, tokens in runs:
        low, high = max(start - at, 0), min(stop - at, tokens)
        if low < high:
            kept.append((name, first + low, high - low))
        at += tokens
        if at >= stop:
            break
    return tuple(kept)


def agree(one: Runs, other: Runs) -> int:
    """How many tokens two strings have in common from their beginnings."""
    same = 0
    for (name, first, tokens), (named, begins, more) in zip(one, other, strict=False):
        if name != named or first != begins:
            break
        same += min(tokens, more)
        if tokens != more:
            break  # the longer goes on, the shorter ends or begins another part
    return same
