"""The best pairs and triples of changes: searched over the best single ones, each estimated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from perfmodel.errors import InputError
from perfmodel.planning.lever import Change, View
from perfmodel.planning.options import Option, make_option, rank_key
from perfmodel.planning.outcome import Metric, Outcome

CANDIDATES = 9
"""Single changes that pairs are made of."""
PER_LEVER = 2
"""Settings of one lever among them."""
BEAM = 6
"""Pairs that are extended to triples."""
WORTH_IT = 1.01
"""A combination has to be better than its best part by 1 % to be worth a line."""


@dataclass(frozen=True, slots=True)
class Search:
    """Looks for combinations that are better, by one metric, than what they are made of."""

    view: View
    base: Outcome
    base_largest: Outcome | None
    metric: Metric

    def combine(self, singles: Iterable[Option]) -> tuple[tuple[Option, ...], tuple[Option, ...]]:
        """The pairs and the triples that pay, best first."""
        parts = self._candidates(singles)
        alone = {frozenset(part.changes): part for part in parts}
        together = [a.changes + b.changes for a, b in combinations(parts, 2)]
        pairs = self._estimated(together)
        beam = [frozenset(pair.changes) for pair in pairs[:BEAM]]
        wider = {pair | set(part.changes) for pair in beam for part in parts}
        order = {part.changes[0]: index for index, part in enumerate(parts)}
        ordered = (tuple(sorted(w, key=lambda c: order[c])) for w in wider if len(w) == 3)
        triples = self._estimated(sorted(ordered, key=lambda w: [order[c] for c in w]))
        known = alone | {frozenset(pair.changes): pair for pair in pairs}
        return self._paying(pairs, known), self._paying(triples, known)

    def _candidates(self, singles: Iterable[Option]) -> list[Option]:
        """The most promising singles, at most `PER_LEVER` settings of a lever.

        A batch beside the largest one is no part: the largest does more. Where nothing fits as it
        is, what takes less memory is promising too.
        """
        found: list[Option] = []
        levers: Counter[str] = Counter()
        options = list(singles)
        grows = any(c.grows for option in options for c in option.changes)
        for option in sorted(options, key=self._order):
            change = option.changes[0]
            worse = grows and "workload.batch" in change.fields and not change.grows
            full = levers[change.lever] == PER_LEVER
            if not (worse or full or change.supposes) and self._promising(option):
                levers[change.lever] += 1
                found.append(option)
        return found[:CANDIDATES]

    def _promising(self, option: Option) -> bool:
        smaller = not self.base.fits and option.gains.factor("memory") > 1
        return smaller or self._promise(option) > 1

    def _promise(self, option: Option) -> float:
        """How many times better the metric gets, at this batch or at the largest one.

        A smaller cache gains little by itself and much where it makes room for a larger batch.
        """
        now = option.gains.factor(self.metric)
        after, before = option.largest, self.base_largest
        if self.metric not in {"throughput", "cost"} or after is None or before is None:
            return now
        rate = after.tokens_per_s / before.tokens_per_s
        return max(now, rate if self.metric == "throughput" else rate * before.gpus / after.gpus)

    def _order(self, option: Option) -> tuple[bool, bool, float]:
        """Rank; of what doesn't fit alone, the smallest first: it is what fits in a pair."""
        key = rank_key(option, self.metric, self.view.limits)
        promise = self._promise(option) if option.outcome.fits else option.gains.factor("memory")
        return (*key[:2], -promise)

    def _estimated(self, sets: Iterable[tuple[Change, ...]]) -> list[Option]:
        found = []
        for changes in sets:
            if not all(a.combines_with(b) for a, b in combinations(changes, 2)):
                continue
            try:
                option = make_option(self.view.estimator, self.base, changes, self.view.limits)
            except InputError:
                continue  # engine or model allow each alone, not both
            if option.outcome.gpus <= self.view.max_gpus and option.outcome.fits:
                found.append(option)
        return sorted(found, key=lambda o: rank_key(o, self.metric, self.view.limits))

    def _paying(
        self, found: Iterable[Option], known: dict[frozenset[Change], Option]
    ) -> tuple[Option, ...]:
        return tuple(option for option in found if self._pays(option, known))

    def _pays(self, option: Option, known: dict[frozenset[Change], Option]) -> bool:
        """Whether each change adds something: each smaller set of them is worse."""
        changes = option.changes
        for size in range(1, len(changes)):
            for part in combinations(changes, size):
                smaller = known.get(frozenset(part))
                if smaller is not None and not self._better(option, smaller):
                    return False
        return True

    def _better(self, option: Option, than: Option) -> bool:
        mine, theirs = (rank_key(o, self.metric, self.view.limits) for o in (option, than))
        if mine[:2] != theirs[:2]:
            return mine < theirs
        return option.gains.factor(self.metric) > WORTH_IT * than.gains.factor(self.metric)
