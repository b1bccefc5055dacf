"""From lists of modules in a ``quantization_config`` to how each layer is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perfmodel.specs.architectures.config import shown
from perfmodel.specs.architectures.module_names import (
    Module,
    Pattern,
    first_expert,
    layer_modules,
    layer_names,
    layer_text,
    parse_pattern,
)
from perfmodel.specs.model import UNQUANTISED, CheckpointFormat, Layer, Model, Scheme

LINEAR = ("Linear", "torch.nn.Linear")
"""Targets that mean every linear layer."""


@dataclass(frozen=True, slots=True)
class Group:
    """A scheme and what it applies to."""

    scheme: Scheme
    targets: tuple[str, ...] | None = None
    """Patterns; None: every linear layer and expert."""

    @property
    def everything(self) -> bool:
        """It applies to each linear layer that no other group names."""
        return self.targets is None or any(target in LINEAR for target in self.targets)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a ``quantization_config`` says, whatever its writer."""

    groups: tuple[Group, ...]
    spared: tuple[Any, ...] = ()
    spared_field: str = "modules_to_not_convert"
    experts_only: bool = False
    head: Literal["no", "yes", "listed"] = "no"
    """``listed``: as any linear layer, by targets and exceptions."""
    kv_cache: str | None = None
    fault: str | None = None
    where: str = ""
    """File and path of the section, for notes."""


@dataclass(slots=True)
class _Names:
    """Patterns of one list, and the names that they take in each layer."""

    patterns: list[Pattern]
    unread: list[str]
    """Entries that are no pattern."""
    used: set[str] = field(default_factory=set)
    """Patterns that `taken` found something for."""
    experts: dict[str, tuple[Module, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, entries: Iterable[Any]) -> _Names:
        patterns, unread = [], []
        for entry in entries:
            try:
                patterns.append(parse_pattern(entry))
            except ValueError:
                unread.append(shown(entry))
        return cls(patterns, unread)

    def idle(self, layers: Sequence[Layer]) -> list[str]:
        """Patterns that took nothing of the model, nor are about anything known beside it."""
        left = [p for p in self.patterns if p.text not in self.used and not (p.foreign or p.head)]
        return [repr(p.text) for p in left if not self._expert_modules(p, layers)]

    def apart(self, layers: Sequence[Layer], taken: Sequence[frozenset[str]]) -> bool:
        """Whether a pattern names an expert of a layer whose experts aren't all ``taken``."""
        return any(
            not _named(module, taken[pattern.layer or 0])
            for pattern in self.patterns
            if pattern.text not in self.used
            for module in self._expert_modules(pattern, layers)
        )

    def _expert_modules(self, pattern: Pattern, layers: Sequence[Layer]) -> tuple[Module, ...]:
        """The modules of the experts of which the pattern names one."""
        text = first_expert(pattern.text)
        if text == pattern.text:
            return ()
        if text not in self.experts:
            first = parse_pattern(text)
            index = first.layer or 0
            found: tuple[Module, ...] = ()
            if index < len(layers):
                names = set(_matched(first, index, layers[index]))
                found = tuple(
                    module
                    for module in layer_modules(layers[index])
                    if any(name in names for alike in module.names for name in alike)
                )
            self.experts[text] = found
        return self.experts[text]

    def taken(self, layers: Sequence[Layer]) -> list[frozenset[str]]:
        """The names of each layer that a pattern takes."""
        uniform = [p for p in self.patterns if p.uniform]
        loose = [p for p in self.patterns if not p.uniform and p.layer is None]
        by_layer: dict[int, list[Pattern]] = {}
        for pattern in self.patterns:
            if pattern.layer is not None and not _beside(pattern):
                by_layer.setdefault(pattern.layer, []).append(pattern)
        everywhere: dict[Layer, frozenset[str]] = {}
        found = []
        for index, layer in enumerate(layers):
            if layer not in everywhere:
                everywhere[layer] = self._take(uniform, 0, layer)
            own = self._take([*loose, *by_layer.get(index, [])], index, layer)
            found.append(everywhere[layer] | own)
        return found

    def _take(self, patterns: Sequence[Pattern], index: int, layer: Layer) -> frozenset[str]:
        taken: set[str] = set()
        text = layer_text(layer, index) if patterns else ""
        for pattern in patterns:
            names = set(_matched(pattern, index, layer)) if pattern.screen(text) else set()
            if names:
                self.used.add(pattern.text)
            taken |= names
        return frozenset(taken)

    @property
    def head(self) -> bool:
        return any(pattern.head for pattern in self.patterns)


def _beside(pattern: Pattern) -> bool:
    """A layer of a tower or a prediction module, not of the text model."""
    first = pattern.text.split("layers.")[0].split("blocks.")[0]
    return pattern.foreign and any(
        word in first for word in ("vision", "visual", "image", "audio", "mtp", "tower")
    )


def _matched(pattern: Pattern, index: int, layer: Layer) -> Iterator[str]:
    return (name for name in layer_names(layer) if pattern.matches(index, name))


def _named(module: Module, taken: frozenset[str]) -> bool:
    return any(all(name in taken for name in names) for names in module.names)


def _partly(module: Module, taken: frozenset[str]) -> bool:
    """Some experts of a layer are named and others aren't."""
    return not _named(module, taken) and any(
        name in taken for names in module.names for name in names
    )


class _Assignment:
    """How each module of each layer is stored."""

    def __init__(self, recipe: Recipe, layers: Sequence[Layer]) -> None:
        self.recipe = recipe
        self.layers = layers
        self.spared = _Names.read(recipe.spared)
        self.targets = [
            _Names.read(t for t in group.targets or () if t not in LINEAR)
            for group in recipe.groups
        ]
        self.spared_in = self.spared.taken(layers)
        self.targets_in = [names.taken(layers) for names in self.targets]
        self.partly = False
        self.nothing = True

    def scheme(self, index: int, module: Module) -> Scheme:
        """How a module of the layer ``index`` is stored."""
        found = self._scheme(index, module)
        self.nothing &= found == UNQUANTISED
        return found

    def _scheme(self, index: int, module: Module) -> Scheme:
        if self.recipe.experts_only and module.role != "expert":
            return UNQUANTISED
        if _named(module, self.spared_in[index]):
            return UNQUANTISED
        self.partly |= _partly(module, self.spared_in[index])
        for group, taken in zip(self.recipe.groups, self.targets_in, strict=True):
            if _named(module, taken[index]):
                return group.scheme
            self.partly |= not group.everything and _partly(module, taken[index])
        rest = (group.scheme for group in self.recipe.groups if group.everything)
        return next(rest, UNQUANTISED)

    def head(self, tied: bool) -> bool | Scheme:
        """Whether and how the LM head is quantised."""
        if tied or self.recipe.head == "no":
            return False
        if self.recipe.head == "yes":
            return True
        if self.spared.head:
            return False
        for group, names in zip(self.recipe.groups, self.targets, strict=True):
            if names.head:
                return group.scheme
        rest = (group.scheme for group in self.recipe.groups if group.everything)
        return next(rest, False)

    def notes(self) -> Iterator[str]:
        where = f"{self.recipe.where}{self.recipe.spared_field}"
        for fault, names in (
            ("no pattern", self.spared.unread),
            ("no module known here", self.spared.idle(self.layers)),
        ):
            if names:
                first = ", ".join(f"{name:.90}" for name in names[:3])
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                yield f"{where}: {first}{more}: {fault}; what it spares is taken as quantised"
        if self.partly or self.spared.apart(self.layers, self.spared_in):
            yield f"{self.recipe.where[:-1]}: some experts of a layer apart are taken as the others"

    def fault(self) -> str | None:
        """A target that can't be followed."""
        for group, names in zip(self.recipe.groups, self.targets, strict=True):
            lost = names.unread + names.idle(self.layers)
            if lost and not (group.everything and len(self.recipe.groups) == 1):
                where = f"{self.recipe.where}config_groups"
                return f"{where}: target {lost[0]:.90} names no module known here"
        return None


def _shared_scheme(stored: Counter[Scheme]) -> Scheme | None:
    """What stands for a role: the commonest quantised scheme in it; None without modules."""
    quantised = [scheme for scheme, _ in stored.most_common() if scheme != UNQUANTISED]
    return quantised[0] if quantised else (UNQUANTISED if stored else None)


def _checkpoint(
    assigned: _Assignment, roles: Mapping[str, Scheme | None], tied: bool, fault: str | None
) -> CheckpointFormat:
    recipe = assigned.recipe
    first = recipe.groups[0].scheme
    names = dict.fromkeys(group.scheme.weights for group in recipe.groups)
    weights = "+".join(sorted(names))
    whole = Scheme(weights=weights, activations=first.activations)
    stated = (roles[role] or first for role in ("linear", "expert"))
    linear, expert = (None if scheme == whole else scheme for scheme in stated)
    head = assigned.head(tied)
    notes = list(assigned.notes())
    if head and recipe.head == "listed":
        notes.append(f"{recipe.where}{recipe.spared_field}: lm_head isn't in it: quantised too")
    if not (head or fault) and assigned.nothing:
        notes.append(f"{recipe.where[:-1]}: no matrix of this model is quantised")
    return CheckpointFormat(
        weights=weights,
        activations=first.activations,
        linear=linear,
        expert=expert,
        head=True if head == whole else head,
        kv_cache=recipe.kv_cache,
        fault=fault,
        notes=tuple(notes),
    )


def _split(
    layers: Sequence[Layer],
    found: Sequence[Mapping[str, tuple[str, Scheme]]],
    roles: Mapping[str, Scheme | None],
) -> Iterator[Layer]:
    """Each layer with its exceptions; alike ones are one object."""
    made: dict[Layer, Layer] = {}
    for layer, modules in zip(layers, found, strict=True):
        stored = tuple(
            (name, scheme) for name, (role, scheme) in modules.items() if scheme != roles[role]
        )
        split = layer.model_copy(update={"stored": stored}) if stored else layer
        yield made.setdefault(split, split)


def with_checkpoint(model: Model, recipe: Recipe) -> Model:
    """``model`` with its checkpoint's formats, and each layer's exceptions from them."""
    modules = model.mtp.layers if model.mtp else ()
    assigned = _Assignment(recipe, (*model.layers, *modules))
    found = [
        {module.name: (module.role, assigned.scheme(i, module)) for module in layer_modules(layer)}
        for i, layer in enumerate(assigned.layers)
    ]
    count = len(model.layers)
    stored: Mapping[str, Counter[Scheme]] = {"linear": Counter(), "expert": Counter()}
    for layer in found[:count]:
        for role, scheme in layer.values():
            stored[role][scheme] += 1
    roles = {role: _shared_scheme(schemes) for role, schemes in stored.items()}
    fault = recipe.fault or assigned.fault()
    layers = assigned.layers if fault else tuple(_split(assigned.layers, found, roles))
    updates: dict[str, Any] = {
        "checkpoint": _checkpoint(assigned, roles, model.tied, fault),
        "layers": tuple(layers[:count]),
    }
    if model.mtp:
        updates["mtp"] = model.mtp.model_copy(update={"layers": tuple(layers[count:])})
    return model.model_copy(update=updates)
