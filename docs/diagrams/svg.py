"""Shapes and colours of the diagrams: text stays text, and the colours follow the reader's dark or light mode."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape, quoteattr

SMALL: Final = 12
TEXT: Final = 13.5
_SANS: Final = 0.545  # width of an average character, as a part of the font's size
_MONO: Final = 0.605

# light and dark value of each colour
_COLOURS: Final = {
    "ink": ("#1f2328", "#e6e6e6"),
    "quiet": ("#5c646e", "#a2a9b3"),
    "rule": ("#c3c9d0", "#4a525c"),
    "panel": ("#eef1f4", "#262c33"),
    "paper": ("#ffffff", "#131416"),
    "a": ("#2f63ad", "#7fb0f2"),
    "b": ("#a85f0c", "#eda95e"),
    "c": ("#23794b", "#6cc795"),
    "d": ("#7c4391", "#cf9be3"),
    "fault": ("#b3242a", "#ff8a8a"),
}
_WEAK: Final = 0.18  # opacity of a filled band


def _variables(place: int) -> str:
    return "".join(f"--{name}:{pair[place]};" for name, pair in _COLOURS.items())


def _style() -> str:
    rules = [
        f".dg{{{_variables(0)}font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}}",
        f"@media(prefers-color-scheme:dark){{.dg{{{_variables(1)}}}}}",
        # Inside a page, the reader's choice there counts for more than the system's.
        f"[data-theme=light] .dg{{{_variables(0)}}}[data-theme=dark] .dg{{{_variables(1)}}}",
        f".dg text{{font-size:{TEXT}px;fill:var(--ink)}}",
        f".dg .s{{font-size:{SMALL}px}}.dg .m{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}}",
        ".dg .w{font-weight:600}.dg .q{fill:var(--quiet)}",
        ".dg .l{stroke:var(--ink);stroke-width:1.4;fill:none}.dg .r{stroke:var(--rule);stroke-width:1.2;fill:none}",
        ".dg .bg{stroke:var(--paper);stroke-width:16;opacity:.85}.dg .on{fill:var(--paper)}",
        ".dg .h{stroke-dasharray:5 4}.dg .p{fill:var(--panel);stroke:var(--rule);stroke-width:1.2}",
    ]
    for name in ("a", "b", "c", "d", "fault"):
        rules.append(
            f".dg .t-{name}{{fill:var(--{name})}}.dg .l-{name}{{stroke:var(--{name});stroke-width:1.8;fill:none}}"
            f".dg .f-{name}{{fill:var(--{name})}}.dg .k-{name}{{fill:var(--{name});fill-opacity:{_WEAK}}}"
        )
    return "".join(rules)


def width_of(text: str, *, size: float = TEXT, mono: bool = False) -> float:
    """Return about how wide a text is, rather too much than too little."""
    return len(text) * size * (_MONO if mono else _SANS)


class Svg:
    """One diagram of ``width`` by ``height`` units, which are pixels at its natural size."""

    def __init__(self, title: str, description: str, width: float) -> None:
        self.title = title
        self.description = description
        self.width = width
        self.height = 0.0
        self._parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        classes: str = "",
    ) -> None:
        """Write one line; ``y`` is its base line. Parts in backquotes are names of the code, in a fixed-width font."""
        spans = []
        for number, part in enumerate(text.split("`")):
            if part:
                spans.append(f'<tspan class="m s">{escape(part)}</tspan>' if number % 2 else escape(part))
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        kind = f' class="{classes}"' if classes else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}"{place}{kind}>{"".join(spans)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, classes: str = "l") -> None:
        """Draw a straight line."""
        self._parts.append(f'<path class="{classes}" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, *, colour: str = "", dashed: bool = False) -> None:
        """Draw a horizontal or vertical line with a head at its end."""
        kind = (f"l-{colour}" if colour else "l") + (" h" if dashed else "")
        self.line(x1, y1, x2, y2, kind)
        head = f"l-{colour}" if colour else "l"
        if y1 == y2:
            back = x2 - 7 if x2 > x1 else x2 + 7
            path = f"M{back:g} {y2 - 4:g}L{x2:g} {y2:g}L{back:g} {y2 + 4:g}"
        else:
            back = y2 - 7 if y2 > y1 else y2 + 7
            path = f"M{x2 - 4:g} {back:g}L{x2:g} {y2:g}L{x2 + 4:g} {back:g}"
        self._parts.append(f'<path class="{head}" d="{path}"/>')

    def path(self, d: str, classes: str) -> None:
        """Draw any path."""
        self._parts.append(f'<path class="{classes}" d="{d}"/>')

    def box(self, x: float, y: float, width: float, height: float, classes: str = "p", *, round_: float = 4) -> None:
        """Draw a rectangle."""
        self._parts.append(
            f'<rect class="{classes}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_:g}"/>'
        )

    def render(self) -> str:
        """Return the file's text."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="dg" role="img" '
            f'viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" aria-label={quoteattr(self.title)}>\n'
            f"<title>{escape(self.title)}</title>\n<desc>{escape(self.description)}</desc>\n"
            f"<style>{_style()}</style>\n" + "\n".join(self._parts) + "\n</svg>\n"
        )
