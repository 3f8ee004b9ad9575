"""Typed reading of a JSON object: strict in values, null the same as absent, errors that name the parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from tokenwire_server.rest.openai.errors import OpenAIError

__all__ = ["INT32_MAX", "INT32_MIN", "Fields", "check_range", "invalid", "unsupported"]

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1
_INT64_MIN = -(2**63)

_JSON_NAMES = {
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    str: "a string",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def invalid(param: str | None, message: str, code: str = "invalid_value") -> OpenAIError:
    """400 for a parameter."""
    return OpenAIError(400, message, code=code, param=param)


def unsupported(param: str, why: str = "is not supported by this server") -> OpenAIError:
    """400 for a parameter that would have to be honoured and is not. 501 would make clients retry."""
    return OpenAIError(400, f"Unsupported parameter: '{param}' {why}.", code="unsupported_parameter", param=param)


def check_range(
    param: str,
    value: float,
    low: float | None,
    high: float | None,
    *,
    low_open: bool = False,
    decimal: bool = False,
) -> None:
    """Refuses a number outside `low` to `high` (both inclusive, unless `low_open`) in OpenAI's words."""
    kind = "decimal" if decimal else "integer"
    if low is not None and (value <= low if low_open else value < low):
        bound = f"Expected a value {'>' if low_open else '>='} {_limit(low)}, but got {value!r} instead."
        raise invalid(param, f"Invalid '{param}': {kind} below minimum value. {bound}", f"{kind}_below_min_value")
    if high is not None and value > high:
        bound = f"Expected a value <= {_limit(high)}, but got {value!r} instead."
        raise invalid(param, f"Invalid '{param}': {kind} above maximum value. {bound}", f"{kind}_above_max_value")


def _limit(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


class Fields:
    """Reader of one JSON object.

    Args:
        data: The object.
        path: Where it is in the request, such as `messages[0]`; empty for the request itself.
    """

    __slots__ = ("_path", "data")

    def __init__(self, data: Mapping[str, Any], path: str = "") -> None:
        self.data = data
        self._path = path

    @classmethod
    def of(cls, value: Any, path: str) -> Fields:
        """Reader of a value that must be an object."""
        if not isinstance(value, dict):
            _wrong_type(path, "an object", value)
        return cls(value, path)

    def at(self, name: str) -> str:
        """The parameter's whole name."""
        return f"{self._path}.{name}" if self._path else name

    def get(self, name: str) -> Any:
        """The value as it came; None where it is absent or null."""
        return self.data.get(name)

    def boolean(self, name: str) -> bool | None:
        """A boolean."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, bool):
            _wrong_type(self.at(name), "a boolean", value)
        return value

    def integer(self, name: str, low: int | None = None, high: int | None = INT32_MAX) -> int | None:
        """An integer within a range. `1.0` is one, as JSON Schema has it."""
        value = self.data.get(name)
        if isinstance(value, float) and value.is_integer():
            # orjson reads an integer below int64 as the nearest float, which may be int64's lowest.
            value = int(value) if value > _INT64_MIN else min(int(value), _INT64_MIN - 1)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            _wrong_type(self.at(name), "an integer", value)
        check_range(self.at(name), value, low, high)
        return value

    def number(
        self, name: str, low: float | None = None, high: float | None = None, *, low_open: bool = False
    ) -> float | None:
        """A number within a range."""
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            _wrong_type(self.at(name), "a decimal", value)
        check_range(self.at(name), value, low, high, low_open=low_open, decimal=True)
        return float(value)

    def string(self, name: str) -> str | None:
        """A string."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, str):
            _wrong_type(self.at(name), "a string", value)
        return value

    def choice(self, name: str, allowed: Sequence[str]) -> str | None:
        """A string out of a list."""
        value = self.string(name)
        if value is not None and value not in allowed:
            names = ", ".join(f"'{one}'" for one in allowed)
            raise invalid(self.at(name), f"Invalid value: '{value[:64]}'. Supported values are: {names}.")
        return value

    def array(self, name: str, max_items: int | None = None) -> list[Any] | None:
        """An array."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            _wrong_type(self.at(name), "an array", value)
        if max_items is not None and len(value) > max_items:
            bound = (
                f"Expected an array with maximum length {max_items}, but got an array with length {len(value)} instead."
            )
            raise invalid(
                self.at(name), f"Invalid '{self.at(name)}': array too long. {bound}", "array_above_max_length"
            )
        return value

    def strings(self, name: str, max_items: int | None = None) -> list[str] | None:
        """An array of strings."""
        value = self.array(name, max_items)
        for index, item in enumerate(value or ()):
            if not isinstance(item, str):
                _wrong_type(f"{self.at(name)}[{index}]", "a string", item)
        return value

    def integers(self, name: str, low: int = 0) -> list[int] | None:
        """An array of 32-bit integers of at least `low`."""
        value = self.array(name)
        return None if value is None else check_integers(self.at(name), value, low)

    def object(self, name: str) -> Fields | None:
        """An object."""
        value = self.data.get(name)
        return None if value is None else Fields.of(value, self.at(name))

    def objects(self, name: str, max_items: int | None = None) -> list[Fields]:
        """An array of objects; empty where it is absent."""
        value = self.array(name, max_items) or []
        return [Fields.of(item, f"{self.at(name)}[{index}]") for index, item in enumerate(value)]

    def required_string(self, name: str) -> str:
        """A string that must be there."""
        value = self.string(name)
        if value is None:
            raise self.missing(name)
        return value

    def required_object(self, name: str) -> Fields:
        """An object that must be there."""
        value = self.object(name)
        if value is None:
            raise self.missing(name)
        return value

    def missing(self, name: str) -> OpenAIError:
        """400 for a parameter that must be there."""
        return invalid(self.at(name), f"Missing required parameter: '{self.at(name)}'.", "missing_required_parameter")

    def empty_array(self, name: str) -> OpenAIError:
        """400 for an array that must hold something."""
        bound = "Expected an array with minimum length 1, but got an empty array instead."
        return invalid(self.at(name), f"Invalid '{self.at(name)}': empty array. {bound}", "empty_array")

    def wrong_type(self, name: str, expected: str) -> NoReturn:
        """400 for a value of another JSON type."""
        _wrong_type(self.at(name), expected, self.data.get(name))


def check_integers(param: str, values: list[Any], low: int = 0) -> list[int]:
    """Refuses what is not a 32-bit integer of at least `low`; errors name the array, not the element."""
    if any(type(value) is not int for value in values):
        wrong = next(value for value in values if type(value) is not int)
        _wrong_type(param, "an array of integers", wrong)
    if values:
        check_range(param, min(values), low, None)
        check_range(param, max(values), None, INT32_MAX)
    return values


def _wrong_type(param: str, expected: str, value: Any) -> NoReturn:
    got = _JSON_NAMES.get(type(value), "something else")
    message = f"Invalid type for '{param}': expected {expected}, but got {got} instead."
    raise invalid(param, message, "invalid_type")
