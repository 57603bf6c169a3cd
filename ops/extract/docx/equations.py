"""Office Math as linear text in LaTeX's manner; characters stay as they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

OPENING = {"m:f": "\\frac", "m:num": "{", "m:den": "{", "m:sup": "^{", "m:sub": "_{", "m:rad": "\\sqrt", "m:lim": "_{"}
CLOSING = {"m:num": "}", "m:den": "}", "m:sup": "}", "m:sub": "}", "m:lim": "}", "m:fName": " "}
WITH_PROPERTIES = frozenset({"m:chr", "m:begChr", "m:endChr", "m:sepChr"})
SEPARATORS = {"m:d": "|", "m:mr": " & ", "m:eqArr": " \\\\ "}  # between arguments
MEMBERS = frozenset({"m:e", "m:sub", "m:sup", "m:deg", "m:num", "m:den", "m:lim", "m:fName"})


@dataclass(slots=True)
class _Frame:
    name: str
    arguments: int = 0
    properties: dict[str, str] = field(default_factory=dict)


class Equation:
    """Collects one `m:oMath` into a paragraph's pieces."""

    def __init__(self, pieces: list[str]) -> None:
        self._pieces = pieces
        self._frames: list[_Frame] = []

    @property
    def is_whole(self) -> bool:
        """Every element that began inside has ended."""
        return not self._frames

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        parent = self._frames[-1] if self._frames else _Frame("m:oMath")
        if name in WITH_PROPERTIES and len(self._frames) > 1:
            self._frames[-2].properties[name] = attributes.get("m:val", "")[:8]
        if name in MEMBERS:
            self._pieces.append(_before_argument(parent, name))
            parent.arguments += 1
        elif name == "m:mr" and parent.arguments:
            self._pieces.append(" \\\\ ")
        if name == "m:mr":
            parent.arguments += 1
        self._pieces.append(_opening(parent, name))
        self._frames.append(_Frame(name))

    def end(self, name: str) -> None:
        if not self._frames:
            return  # the `m:oMath` itself
        frame = self._frames.pop()
        parent = self._frames[-1].name if self._frames else ""
        if name == "m:e" and parent == "m:rad":
            self._pieces.append("}")
        elif name == "m:deg":
            self._end_degree()
        elif name == "m:d":
            self._pieces.append(frame.properties.get("m:endChr", ")"))
        elif name == "m:acc":
            self._pieces.append(frame.properties.get("m:chr", "\u0302"))
        else:
            self._pieces.append(CLOSING.get(name, ""))

    def _end_degree(self) -> None:
        if self._pieces[-1] == "[":  # a square root's, which is not shown
            self._pieces.pop()
        else:
            self._pieces.append("]")


def _opening(parent: _Frame, name: str) -> str:
    if name == "m:e":
        return "{" if parent.name == "m:rad" else ""
    if name == "m:deg":
        return "["
    if name == "m:lim" and parent.name == "m:limUpp":
        return "^{"
    return OPENING.get(name, "")


def _before_argument(frame: _Frame, name: str) -> str:
    """What stands before an argument of a construction: its sign before the first, a separator before later ones."""
    if frame.name == "m:nary" and frame.arguments == 0:
        return frame.properties.get("m:chr", "∫")
    if frame.name == "m:d":
        return frame.properties.get("m:begChr", "(") if frame.arguments == 0 else frame.properties.get("m:sepChr", "|")
    if name == "m:e" and frame.arguments and frame.name in SEPARATORS:
        return SEPARATORS[frame.name]
    return ""
