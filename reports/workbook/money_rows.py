"""The rows of the Capacity sheet on rent, power and energy."""

from __future__ import annotations

from functools import partial

from perfmodel.planning.capacity.choice import busy_share
from perfmodel.units import KILO
from reports.workbook import inputs
from reports.workbook.cells import NONE, Column, Scalar
from reports.workbook.figure import RATE, Figure, Maker, Value
from reports.workbook.sized import ENDS, Sized


def _cost(name: str, end: str) -> Value:
    def value(s: Sized) -> Scalar:
        if s.fleets is None or s.prices is None:
            return NONE
        found: float = getattr(s.fleets[end], name)
        return found

    return value


def _suffixed(name: str, end: str) -> str:
    return f"{name}_{end}" if end else name


def _usd(end: str) -> str:
    return _suffixed("usd_per_gpu_hour", end)


def _price_rows() -> list[Figure]:
    def price(end: str) -> Figure:
        return Figure(
            Column(_usd(end), f"Price{f', {end}' if end else ', middle'}", "usd3",
                   unit="USD per GPU hour"),
            lambda s: inputs.NO_PRICE if s.prices is None else s.prices[end],
            lambda at: at.price(end),
        )  # fmt: skip

    def hourly(end: str) -> Figure:
        return Figure(
            Column(_suffixed("usd_per_hour", end), f"Cost{f', {end} price' if end else ''}",
                   "usd2", unit="USD per hour", strong=not end),
            _cost("usd_per_hour", end),
            lambda at: f"IF(AND(ISNUMBER({at('gpus')}),ISNUMBER({at(_usd(end))})),"
            f'{at("gpus")}*{at(_usd(end))},"{NONE}")',
        )  # fmt: skip

    return [price(end) for end in ENDS] + [hourly(end) for end in ENDS]


def _token_rows() -> list[Figure]:
    def tokens(kind: str, share: str, mean: str, end: str) -> Figure:
        key = f"usd_per_million_{kind}_tokens"
        hourly = _suffixed("usd_per_hour", end)

        def text(at: Maker) -> str:
            part = share.format(at("prefill_share"))
            return at.where(hourly, f"{at(hourly)}*{part}/({inputs.RATE}*3600/1E6*{mean})")

        title = f"Cost of {kind} tokens{f', {end} price' if end else ''}"
        column = Column(_suffixed(key, end), title, "usd3", unit="USD per million", strong=not end)
        return Figure(column, _cost(key, end), text)

    kinds = (("prompt", "{}", inputs.PROMPT), ("output", "(1-{})", inputs.OUTPUT))
    return [tokens(*kind, end) for kind in kinds for end in ENDS]


def _monthly_cost(s: Sized) -> Scalar:
    if s.fleets is None or s.prices is None:
        return NONE
    return inputs.HOURS_PER_MONTH * s.fleets[""].usd_per_hour


def _monthly() -> Figure:
    return Figure(
        Column("usd_per_month", "Cost", "usd", unit="USD per month"),
        _monthly_cost,
        lambda at: at.where("usd_per_hour", f"{at('usd_per_hour')}*{inputs.HOURS}"),
    )


def _energy(name: str, end: str, factor: float) -> Value:
    def value(s: Sized) -> Scalar:
        return NONE if s.energy is None else getattr(getattr(s.energy, name), end) * factor

    return value


def _power_rows() -> list[Figure]:
    mean = "mean_requests_per_s"

    def busy(s: Sized) -> Scalar:
        if s.fleet is None:
            return NONE
        return busy_share(s.facts.choice.levels, s.each(s.case.plan.traffic.rate))

    def power(end: str, busy_share: str, idle_share: str) -> Figure:
        share = f"({{0}}*{busy_share}+(1-{{0}})*{idle_share})"
        return Figure(
            Column(f"kilowatts_{end}", f"Power at the mean rate, {end}", "n2",
                   unit="kW, GPUs alone"),
            _energy("watts", end, 1 / KILO),
            lambda at: f"IF(AND(ISNUMBER({at('busy_share')}),ISNUMBER({at('tdp_w')})),"
            f'{at("gpus")}*{at("tdp_w")}/1000*{share.format(at("busy_share"))},"{NONE}")',
        )  # fmt: skip

    def energy(end: str) -> Figure:
        watts = f"kilowatts_{end}"
        return Figure(
            Column(f"kwh_per_million_tokens_{end}", f"Energy, {end}", "n3",
                   unit="kWh per million tokens"),
            _energy("kwh_per_million_tokens", end, 1.0),
            lambda at: at.where(
                watts, f"{at(watts)}/({inputs.RATE}*3600/1E6*({inputs.PROMPT}+{inputs.OUTPUT}))"),
        )  # fmt: skip

    return [
        Figure(Column(mean, "A replica's mean load", "n2", unit="requests/s"),
               lambda s: NONE if s.fleet is None else s.each(s.case.plan.traffic.rate),
               lambda at: at.where(RATE, f"{inputs.RATE}/{at('replicas')}")),
        Figure(Column("busy_share", "Busy at it", "percent0", unit="of the time"), busy,
               partial(Maker.between, x=mean, y="utilisation", from_zero=True)),
        Figure(Column("tdp_w", "Power limit (TDP)", "int", unit="W per GPU"),
               lambda s: NONE if s.facts.hardware.tdp_w is None else s.facts.hardware.tdp_w,
               lambda at: at.fact("compute.tdp_w")),
        power("low", inputs.BUSY_LOW, inputs.IDLE_LOW),
        power("high", inputs.BUSY_HIGH, inputs.IDLE_HIGH),
        energy("low"), energy("high"),
    ]  # fmt: skip


def money_figures() -> list[Figure]:
    """Prices, rent, cost of tokens, power and energy."""
    return [*_price_rows(), _monthly(), *_token_rows(), *_power_rows()]
