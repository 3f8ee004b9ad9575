"""Path templates of `google.api.http`: `/v1/{name=a/*}/b:verb`, `*` for a segment and `**` for the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Template", "parse_template"]

_VARIABLE = re.compile(r"\{([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:=([^{}]*))?\}")
_VERB = re.compile(r":([^/:{}]+)$")
_SEGMENT = re.compile(r"/(\{[^}]*\}|[^/]*)")
_PLAIN = re.compile(r"\*\*?|[^{}*/]+")


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template."""

    segments: tuple[str, ...]
    """Literals, `*`, and `**` in the last place only."""
    variables: tuple[tuple[str, int, int], ...]
    """Field path, first segment, and the one after the last."""
    verb: str = ""
    """What follows the last colon; empty where there is none."""

    @property
    def literal(self) -> bool:
        """Whether it matches one path alone."""
        return "*" not in self.segments and "**" not in self.segments

    def match(self, parts: Sequence[str]) -> dict[str, str] | None:
        """The variables of a path that was split at its slashes, or None. A verb is part of the last one."""
        if self.verb:
            suffix = f":{self.verb}"
            if not parts[-1].endswith(suffix):
                return None
            parts = [*parts[:-1], parts[-1].removesuffix(suffix)]
        deep = bool(self.segments) and self.segments[-1] == "**"
        fixed = self.segments[:-1] if deep else self.segments
        if len(parts) < len(fixed) or (len(parts) > len(fixed) and not deep):
            return None
        if any(segment not in ("*", part) for segment, part in zip(fixed, parts, strict=False)):
            return None
        last = len(self.segments)
        return {
            name: "/".join(parts[start : len(parts) if deep and end == last else end])
            for name, start, end in self.variables
        }


def parse_template(text: str) -> Template:
    """Parses a template.

    Raises:
        ValueError: It is none; the contract is at fault.
    """
    if not text.startswith("/"):
        raise ValueError(f"path template {text!r} does not start with a slash")
    path = text[1:]
    verb = _VERB.search(path)
    if verb:
        path = path[: verb.start()]
    segments: list[str] = []
    variables: list[tuple[str, int, int]] = []
    for part in _SEGMENT.findall(f"/{path}") if path else ():
        variable = _VARIABLE.fullmatch(part)
        inner = (variable[2] or "*").split("/") if variable else [part]
        if variable:
            variables.append((variable[1], len(segments), len(segments) + len(inner)))
        segments.extend(inner)
    if "**" in segments[:-1] or not all(map(_PLAIN.fullmatch, segments)):
        raise ValueError(f"path template {text!r} is malformed")
    return Template(tuple(segments), tuple(variables), verb[1] if verb else "")
