"""One case as a whole, changes of it, and their estimates, each made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from perfmodel.errors import InputError
from perfmodel.inference.estimate import Estimate, estimate
from perfmodel.inference.memory import Memory, memory_use
from perfmodel.inference.plan import make_plan
from perfmodel.inference.price_book import PriceBook
from perfmodel.specs.base import Case
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload

Built = TypeVar("Built", bound=Case)


def changed(record: Built, values: Mapping[str, Any]) -> Built:
    """``record`` with other values, validated as if a user had given them.

    Raises:
        InputError: a value that the field doesn't take.
    """
    if not values:
        return record
    fields = {name: getattr(record, name) for name in type(record).model_fields}
    return type(record)(**fields | dict(values))


@dataclass(frozen=True, slots=True)
class Situation:
    """What `estimate` takes: the user's case, or a changed one."""

    model: Model
    hardware: Hardware
    workload: Workload
    deployment: Deployment

    def with_values(
        self, deployment: Mapping[str, Any] | None = None, workload: Mapping[str, Any] | None = None
    ) -> Situation:
        """The same model and hardware under changed fields.

        Raises:
            InputError: a value that a field doesn't take.
        """
        return replace(
            self,
            deployment=changed(self.deployment, deployment or {}),
            workload=changed(self.workload, workload or {}),
        )


class Estimator:
    """Estimates of situations of one model on one device.

    Operators that two situations share are priced once; a situation is estimated once.
    """

    def __init__(
        self, *, roofline_only: bool = False, progress: Callable[[int], None] | None = None
    ) -> None:
        self._roofline_only = roofline_only
        self._prices = PriceBook()
        self._known: dict[tuple[Deployment, Workload], Estimate | InputError] = {}
        self._progress = progress

    def of(self, situation: Situation) -> Estimate:
        """The estimate of a situation.

        Raises:
            InputError: model, hardware or engine don't allow it.
        """
        key = (situation.deployment, situation.workload)
        if key not in self._known:
            self._known[key] = self._made(situation)
            if self._progress is not None:
                self._progress(len(self._known))
        known = self._known[key]
        if isinstance(known, InputError):
            raise known
        return known

    def memory(self, situation: Situation) -> Memory:
        """The memory of a situation, without its times.

        Raises:
            InputError: as of ``of``.
        """
        known = self._known.get((situation.deployment, situation.workload))
        if isinstance(known, Estimate):
            return known.memory
        s = situation
        plan = make_plan(s.model, s.hardware, s.workload, s.deployment)
        return memory_use(s.model, s.hardware, s.workload, plan)

    def _made(self, situation: Situation) -> Estimate | InputError:
        try:
            return estimate(
                situation.model,
                situation.hardware,
                situation.workload,
                situation.deployment,
                roofline_only=self._roofline_only,
                prices=self._prices,
            )
        except InputError as error:
            return error
