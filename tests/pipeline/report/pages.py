"""A page as a browser's parser sees it: elements, attributes and text, and whether it is well formed."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.cells: list[list[str]] = []  # the texts of each table row
        self._open: list[str] = []
        self.feed(content)
        self.close()
        assert self._open == [], f"left open: {self._open}"

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    def row(self, first: str) -> list[str]:
        """The cells of the table row that begins with this text."""
        (found,) = (cells for cells in self.cells if cells and cells[0].strip() == first)
        return [cell.strip() for cell in found]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in {tag}"
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th") and self.cells:
            self.cells[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.texts.append(data)
            if self.cells and self.cells[-1] and {"td", "th"} & set(self._open):
                self.cells[-1][-1] += data
