"""A typed reader over a config's dictionary: every fault is one line naming file, field and value.

Families name the same thing differently (``hidden_size``, ``n_embd``, ``d_model``), so each
method takes the synonyms in order of precedence. Null means absent, except where `states` asks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from perfmodel.errors import InputError

MAX_WIDTH = 2**24
MAX_LAYERS = 2**12
MAX_HEADS = 2**17


class Config:
    """One object of a config file, with the file's name and the path to it for errors."""

    def __init__(
        self, data: Mapping[str, Any], where: str, path: str = "", nested: bool = False
    ) -> None:
        self.data = data
        self.where = where
        self.path = path
        self.nested = nested
        """The object is a ``text_config``: what it leaves out takes the class's default."""

    def fault(self, field: str, message: str) -> InputError:
        """The error for ``field``: file, field, what is wrong."""
        return InputError(f"{self.where}: {self.path}{field}: {message}")

    def states(self, *keys: str) -> bool:
        """Whether one of ``keys`` is written, be it as null."""
        return any(key in self.data for key in keys)

    def find(self, *keys: str) -> tuple[str, Any]:
        """The first of ``keys`` with a value, else the first key and None."""
        for key in keys:
            if self.data.get(key) is not None:
                return key, self.data[key]
        return keys[0], None

    def optional(self, *keys: str, low: int = 1, high: int = MAX_WIDTH) -> int | None:
        """A whole number within ``low`` … ``high``, or None where absent.

        Raises:
            InputError: the value is not a whole number, or out of bounds.
        """
        key, value = self.find(*keys)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fault(key, f"must be a whole number, not {shown(value)}")
        if not low <= value <= high:
            raise self.fault(key, f"must be within {low} and {high}, not {shown(value)}")
        return value

    def integer(
        self, *keys: str, default: int | None = None, low: int = 1, high: int = MAX_WIDTH
    ) -> int:
        """As `optional`, with a default where absent.

        Raises:
            InputError: also where it is absent and there is no default.
        """
        value = self.optional(*keys, low=low, high=high)
        if value is not None:
            return value
        if default is None:
            also = f" (or {', '.join(keys[1:])})" if len(keys) > 1 else ""
            raise self.fault(keys[0], f"missing{also}; it must be a whole number")
        return default

    def flag(self, *keys: str, default: bool) -> bool:
        """A true/false, or the default where absent.

        Raises:
            InputError: the value is neither true nor false.
        """
        key, value = self.find(*keys)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fault(key, f"must be true or false, not {shown(value)}")
        return value

    def number(self, *keys: str, default: float, low: float = 0.0, high: float = 1e9) -> float:
        """A finite number within bounds, or the default where absent.

        Raises:
            InputError: the value is no number, or out of bounds.
        """
        key, value = self.find(*keys)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault(key, f"must be a number, not {shown(value)}")
        if not low <= value <= high:
            raise self.fault(key, f"must be within {low:g} and {high:g}, not {shown(value)}")
        return float(value)

    def text(self, *keys: str, default: str | None = None) -> str | None:
        """A text, or the default where absent.

        Raises:
            InputError: the value is no text.
        """
        key, value = self.find(*keys)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.fault(key, f"must be text, not {shown(value)}")
        return value

    def choice(self, key: str, allowed: Collection[str], default: str) -> str:
        """One of the ``allowed`` texts.

        Raises:
            InputError: the value is another.
        """
        value = self.text(key, default=default)
        if value is None or value not in allowed:
            raise self.fault(key, f"must be one of {', '.join(allowed)}, not {shown(value)}")
        return value

    def items(self, *keys: str) -> list[Any] | None:
        """A list, or None where absent.

        Raises:
            InputError: the value is no list.
        """
        key, value = self.find(*keys)
        if value is not None and not isinstance(value, list):
            raise self.fault(key, f"must be a list, not {shown(value)}")
        return value

    def names(self, key: str, length: int, allowed: Collection[str]) -> list[str] | None:
        """One of the ``allowed`` texts for each of ``length`` layers, or None where absent.

        Raises:
            InputError: wrong length, or an item that isn't allowed.
        """
        values = self.items(key)
        if values is None:
            return None
        if len(values) != length:
            raise self.fault(key, f"must have one item per layer ({length}), not {len(values)}")
        for position, value in enumerate(values):
            if not isinstance(value, str) or value not in allowed:
                known = ", ".join(allowed)
                raise self.fault(f"{key}.{position}", f"must be one of {known}, not {shown(value)}")
        return values

    def integers(self, *keys: str, low: int = 0, high: int = MAX_LAYERS) -> list[int] | None:
        """A list of whole numbers within bounds, or None where absent.

        Raises:
            InputError: an item is no whole number, or out of bounds.
        """
        key, _ = self.find(*keys)
        values = self.items(*keys)
        for position, value in enumerate(values or []):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise self.fault(
                    f"{key}.{position}",
                    f"must be a whole number within {low} and {high}, not {shown(value)}",
                )
        return values

    def section(self, key: str, nested: bool = False) -> Config | None:
        """The object under ``key``, or None where absent.

        Raises:
            InputError: the value is no object.
        """
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.fault(key, f"must be an object, not {shown(value)}")
        label = key if key.isprintable() else repr(key)
        return Config(value, self.where, f"{self.path}{label}.", nested or self.nested)


def shown(value: Any) -> str:
    """A value for an error: short, on one line."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested a thousand deep; an integer of 4,300 digits
        return f"this {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:37]}..."
