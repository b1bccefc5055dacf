"""What an engine's next step computes: tokens of prompts, by its policy, and which it admits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.serving.sequence import Sequence, Work

if TYPE_CHECKING:
    from perfmodel.serving.instance import Instance


def fill_step(engine: Instance) -> Work:
    """The prompts' tokens of the next step; nothing where it only decodes."""
    if engine.drains and not engine.filling:
        return []
    budget, batch = engine.budget, engine.batch
    if engine.mixes:
        budget -= batch.slots * engine.times.width
    places = engine.max_num_seqs - batch.slots - len(engine.prefilling)
    work: Work = []
    if engine.prefilling:
        budget = _go_on(engine, work, budget)
    if engine.waiting and budget > 0 and places > 0:
        _admit(engine, work, budget, places)
    return work


def _go_on(engine: Instance, work: Work, budget: int) -> int:
    """Add further chunks of prompts that are computed in part; tokens that are left."""
    for sequence in tuple(engine.prefilling):
        if budget <= 0:
            break
        size = min(sequence.to_prefill, budget)
        work.append((sequence, size))
        budget -= size
        if size == sequence.to_prefill:
            engine.prefilling.remove(sequence)
            if engine.prefixes is not None:
                engine.prefixes.computed(sequence)
    return budget


def _admit(engine: Instance, work: Work, budget: int, places: int) -> None:
    """Add waiting prompts to a step, in order, while tokens, places and blocks last."""
    cache, waiting = engine.cache, engine.waiting
    free = cache.free(engine.batch, work)
    while waiting and budget > 0 and places > 0:
        sequence = waiting[0]
        size = sequence.to_prefill
        match = None
        if engine.prefixes is not None and size == sequence.prompt + sequence.generated:
            match = engine.prefixes.match(sequence)
            size -= match.blocks * engine.blocks.block
        if size > budget and _waits_for_step(engine, sequence, work):
            break
        taken = cache.take(sequence, free, match)
        if taken < 0:
            break
        waiting.popleft()
        free -= taken
        places -= 1
        if sequence.admitted_s < 0:
            sequence.admitted_s = engine.clock
            sequence.hit_tokens = sequence.prompt - size if match is not None else 0
        if 0 < size <= budget and engine.prefixes is None:
            work.append((sequence, size))
            budget -= size
        elif size:
            budget -= _start(engine, sequence, size, budget, work)
        else:  # its cache was computed before, here or elsewhere
            last = sequence.last_s if sequence.last_s >= 0 else sequence.first_s
            engine.batch.begin([sequence], last)
        if engine.prefixes is not None:
            engine.prefixes.make_room(engine.batch.tokens_after(1))


def _waits_for_step(engine: Instance, sequence: Sequence, work: Work) -> bool:
    """Whether a prompt that this step can't hold waits for one that does; some never could."""
    if engine.policy.chunked:
        return False
    beside = engine.mixes and engine.batch.slots > 0
    return bool(work) or (beside and sequence.to_prefill <= engine.budget)


def _start(engine: Instance, sequence: Sequence, size: int, budget: int, work: Work) -> int:
    """Put a prompt's first tokens into a step; how many they are."""
    if size > budget and engine.policy.chunked:
        size = budget
        engine.prefilling.append(sequence)
    elif engine.prefixes is not None:
        engine.prefixes.computed(sequence)
    work.append((sequence, size))
    return size
