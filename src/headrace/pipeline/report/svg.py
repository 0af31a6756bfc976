"""matplotlib's SVG made fit to stand inside a page: no ids that clash, no fonts or colours of its own, short numbers.

Charts are drawn in stand-in colours, each of which becomes a CSS variable here, so that one drawing serves the light
and the dark page. Pure.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"

# Name of the CSS variable -> the colour it is drawn in. Any colours that differ would do.
INKS = {
    "ink": "#010101",
    "faint": "#010102",
    "line": "#010103",
    "second": "#010104",
    "good": "#010105",
    "warning": "#010106",
    "bad": "#010107",
    "idle": "#010108",
}
_VARIABLES = {colour: f"var(--{name})" for name, colour in INKS.items()}
_COLOUR = re.compile("|".join(_VARIABLES))
_NUMBER = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"#([\w.-]+)")
# What a drawing may hold; anything else is dropped.
_KEPT = {"svg", "g", "path", "text", "use", "defs", "clipPath", "rect"}


def fit_for_page(drawing: str, prefix: str, title: str) -> str:
    """The drawing as an `<svg>` element. `prefix` keeps its ids apart from those of the page's other drawings."""
    root = ElementTree.fromstring(drawing)  # noqa: S314 - matplotlib wrote it a moment ago
    used = set(_REFERENCE.findall(" ".join(value for node in root.iter() for value in node.attrib.values())))
    _prune(root)
    for node in root.iter():
        node.tag = _local(node.tag)
        _rewrite(node, prefix, used)
    width, height = (float(root.attrib.pop(name).removesuffix("pt")) for name in ("width", "height"))
    root.attrib.clear()
    root.attrib.update({"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "class": "chart"})
    root.set("aria-label", title)
    name = ElementTree.Element("title")
    name.text = title
    root.insert(0, name)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def _prune(node: ElementTree.Element) -> None:
    for child in list(node):
        if _local(child.tag) in _KEPT:
            _prune(child)
            child.tail = None
        else:  # metadata, and a style that would be for the whole page
            node.remove(child)
    if _local(node.tag) != "text":
        node.text = None


def _rewrite(node: ElementTree.Element, prefix: str, used: set[str]) -> None:
    for name, value in list(node.attrib.items()):
        del node.attrib[name]
        if name == "id":
            if value in used:
                node.set("id", f"{prefix}-{value}")
        elif name == "style":
            kept = [part.strip() for part in value.split(";") if part.strip() and not part.strip().startswith("font")]
            if kept:
                node.set("style", ";".join(_coloured(part.replace(": ", ":")) for part in kept))
        elif name == f"{{{_XLINK}}}href":
            node.set("href", value.replace("#", f"#{prefix}-"))
        elif name == "clip-path":
            node.set(name, value.replace("#", f"#{prefix}-"))
        elif not name.startswith("{"):
            node.set(name, _coloured(_NUMBER.sub(_short, value)))


def _coloured(text: str) -> str:
    return _COLOUR.sub(lambda match: _VARIABLES[match[0]], text)


def _short(match: re.Match[str]) -> str:
    return f"{float(match[0]):.1f}".removesuffix(".0")


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
