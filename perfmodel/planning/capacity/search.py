"""The search for a plan: all candidates by a bound, the best by the mean field, then simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, isnan

from perfmodel.errors import InputError
from perfmodel.planning.capacity.answer import Rejected
from perfmodel.planning.capacity.candidates import Candidate, candidates
from perfmodel.planning.capacity.choice import fleet_of, middle_price
from perfmodel.planning.capacity.confirm import Confirmed, confirm, missed, tuned
from perfmodel.planning.capacity.layouts import LAYOUT
from perfmodel.planning.capacity.pools import pooled
from perfmodel.planning.capacity.question import Question
from perfmodel.planning.capacity.ranking import Curve, Predicted, bound, mean_field
from perfmodel.planning.capacity.words import duration
from perfmodel.specs.hardware import Hardware

Progress = Callable[[str, int, int], None]
"""Is told what is being done, and how many of how many are."""
TUNED = 2
"""Choices whose batch limit and chunk size are tuned, the cheapest first."""
ALIKE = 2
"""Deployments of one hardware and layout that are offered, whatever their formats."""
TRIES = 2
"""Deployments that are simulated for each that is wanted."""
FAST = 3.0
"""Multiple of the cheapest rent below which a fast deployment is worth showing."""
NEAREST = 2
"""Deployments that are simulated where none does on average."""
Cost = tuple[float, float, float]


@dataclass(slots=True)
class Search:
    """The state of one search."""

    question: Question
    progress: Progress | None = None
    ranked: list[tuple[Candidate, Curve]] = field(default_factory=list)
    """Candidates that fit, with their bound."""
    rejected: list[Rejected] = field(default_factory=list)
    found: list[Confirmed] = field(default_factory=list)
    failed: list[Confirmed] = field(default_factory=list)
    """Simulated, and too slow at any load."""
    considered: int = 0

    def run(self, kinds: Sequence[Hardware]) -> None:
        """Find deployments that do; raises no error where there is none."""
        for done, kind in enumerate(kinds):
            self.tell("deployments of", done, len(kinds))
            self._look(kind)
        self.ranked.sort(key=lambda pair: self._expected(*pair))
        self._confirm()
        if not self.found and not self.failed:
            self._approach()
        self.found.sort(key=lambda c: self.cost(c.candidate, c.rate))
        for place, confirmed in enumerate(self.found[:TUNED]):
            self.tell("settings", place, TUNED)
            self.found[place] = tuned(confirmed, self.question)
        self.found.sort(key=lambda c: self.cost(c.candidate, c.rate))

    def cost(self, candidate: Candidate, rate: float) -> Cost:
        """Sorts replicas that carry ``rate``: by rent over the horizon, GPUs, and room."""
        if not rate:
            return inf, inf, 0.0
        usd = middle_price(candidate, self.question)
        fleets = [
            fleet_of(candidate, self.question, rate, 0.5, usd, month)
            for month in range(self.question.traffic.months + 1)
        ]
        whole = sum(fleet.usd_per_hour for fleet in fleets)
        gpus = sum(fleet.gpus for fleet in fleets)
        return (inf if isnan(whole) else whole), gpus, -rate / candidate.gpus

    def tell(self, what: str, done: int, total: int) -> None:
        """Say how far it is."""
        if self.progress is not None:
            self.progress(what, done, total)

    def _reject(self, candidate: Candidate, reason: str) -> None:
        self.rejected.append(Rejected(candidate.hardware.name, candidate.label, reason))

    def _expected(self, candidate: Candidate, curve: Curve) -> Cost:
        return self.cost(candidate, Predicted.of(curve, self.question).rate)

    def _look(self, kind: Hardware) -> None:
        looked = candidates(self.question, kind)
        self.rejected += looked.rejected
        self.considered += looked.considered
        fixed = self.question.serving.disaggregate is not None
        pairs = [(made, bound(made, self.question)) for made in looked.fitting]
        pairs.sort(key=lambda pair: self._expected(*pair))
        if pairs and self.question.rules.disaggregated and not fixed:
            apart = pooled(pairs[0][0], self.question)
            if apart is not None:
                self.considered += 1
                pairs.append(apart)
        self.ranked += pairs

    def _confirm(self) -> None:
        """Simulate candidates, cheapest first but the best of each hardware before all others."""
        wanted = self.question.rules.confirm
        most = max(wanted * TRIES, len({c.hardware.name for c, _ in self.ranked}))
        simulated = 0
        alike: Counter[tuple[object, ...]] = Counter()
        for candidate, curve in self._queue():
            if len(self.found) >= wanted or simulated >= most:
                self._reject(candidate, self._dearer(candidate, curve))
                continue
            sizes = (getattr(candidate.deployment, name) for name in LAYOUT)
            sort = (candidate.hardware.name, candidate.serving.disaggregate, *sizes)
            if alike[sort] >= ALIKE:
                self._reject(candidate, "two with this layout are offered that need no more")
                continue
            try:
                steady = mean_field(candidate, self.question, curve)
            except InputError as error:  # the longest requests don't fit
                self._reject(candidate, str(error))
                continue
            predicted = Predicted.of(steady, self.question)
            if not predicted.rate:
                self._reject(candidate, self._alone(predicted))
                continue
            self.tell("simulated", len(self.found), wanted)
            simulated += 1
            alike[sort] += self._simulate(candidate, predicted)

    def _queue(self) -> list[tuple[Candidate, Curve]]:
        """The cheapest of each hardware, in the model's own formats, the fastest; then all others.

        A user sees more alternatives than the cheapest few, which differ in little.
        """
        whole = [self.ranked, [pair for pair in self.ranked if not pair[0].risks], self._fast()]
        if self.question.given.speculation is not None:
            whole.append([p for p in self.ranked if p[0].deployment.speculation is None])
        heads: dict[int, tuple[Candidate, Curve]] = {}
        for pairs in whole:
            seen: set[str] = set()
            for pair in pairs:
                if pair[0].hardware.name not in seen:
                    seen.add(pair[0].hardware.name)
                    heads.setdefault(id(pair[0]), pair)
        return [*heads.values(), *(pair for pair in self.ranked if id(pair[0]) not in heads)]

    def _fast(self) -> list[tuple[Candidate, Curve]]:
        """Those that cost less than three times the cheapest, by the TPOT of a request alone."""
        if not self.ranked:
            return []
        most = FAST * self._expected(*self.ranked[0])[0]
        near = [pair for pair in self.ranked if self._expected(*pair)[0] < most]
        alone = {id(p[0]): Predicted.of(p[1], self.question).alone_tpot_s for p in near}
        return sorted(near, key=lambda pair: alone[id(pair[0])])

    def _simulate(self, candidate: Candidate, predicted: Predicted) -> bool:
        """Whether the simulator finds a load at which the candidate does."""
        try:
            confirmed = confirm(candidate, predicted, self.question)
        except InputError as error:
            self._reject(candidate, str(error))
            return False
        if confirmed.best is not None:
            self.found.append(confirmed)
            return True
        self.failed.append(confirmed)
        said = missed(confirmed.explorer.emptiest, self.question)
        self._reject(candidate, f"does on average, but simulated, at any load: {said}")
        return False

    def _approach(self) -> None:
        """Simulate the least slow candidates where none does on average."""

        def slowness(pair: tuple[Candidate, Curve]) -> float:
            alone = Predicted.of(pair[1], self.question)
            ratios = [0.0]
            for kind in self.question.traffic.classes:
                for value, limit in (
                    (alone.alone_ttft_s, kind.level.ttft_s),
                    (alone.alone_tpot_s, kind.level.tpot_s),
                    (alone.alone_e2e_s, kind.level.e2e_s),
                ):
                    ratios.append(0.0 if limit is None or isnan(value) else value / limit)
            return max(ratios)

        for candidate, curve in sorted(self.ranked, key=slowness)[:NEAREST]:
            predicted = Predicted.of(curve, self.question)
            try:
                confirmed = confirm(candidate, predicted, self.question)
            except InputError:
                continue
            (self.failed if confirmed.best is None else self.found).append(confirmed)

    def _dearer(self, candidate: Candidate, curve: Curve) -> str:
        usd, gpus, _ = self._expected(candidate, curve)
        if gpus == inf:
            return self._alone(Predicted.of(curve, self.question))
        months = self.question.traffic.months + 1
        about = f"{gpus / months:.3g} GPUs" if usd == inf else f"{usd / months:.3g} USD/h"
        return f"not simulated: others need less than its {about} or so"

    @staticmethod
    def _alone(predicted: Predicted) -> str:
        parts = [f"TTFT {duration(predicted.alone_ttft_s)}"]
        if not isnan(predicted.alone_tpot_s):
            parts.append(f"TPOT {duration(predicted.alone_tpot_s)}")
        return f"too slow for a request alone: {', '.join(parts)} on average"
