"""The parts of a page, and the page as one HTML file without external parts.

Charts need JavaScript; the verdict, its reasons and all tables do not. Templates escape every value; the
charts' data is JSON that no script tag can end.
"""

import base64
import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec.structs import asdict

from harness.analysis.run_outcome import Status, limit_status
from harness.arrays import Floats
from harness.files import atomic_write

_HERE = Path(__file__).parent
_DIGITS = 5  # significant digits of a value in a chart
PAGE_BEGIN = b"<!doctype html>"  # of templates/page.html

Axis = Literal["seconds", "nines", "number", "log"]
Style = Literal["line", "steps", "points", "open points", "crosses", "bars"]


class Series(msgspec.Struct, frozen=True):
    """Values of a chart."""

    label: str
    values: Floats
    """one for each x; NaN where there is none"""
    color: int = 0
    """number of a colour in page.css"""
    style: Style = "line"
    """`steps` hold each value back to the one before"""
    names: Sequence[str] = ()
    """a text beside each value; none, or one for each x"""


class Limit(msgspec.Struct, frozen=True):
    """A line across a chart at a value of y, or of x."""

    label: str
    value: float
    axis: Literal["x", "y"] = "y"
    event: bool = False
    """something that happened, not a bound"""


class Shade(msgspec.Struct, frozen=True):
    """A part of the x axis with another background."""

    low: float
    high: float


class Chart(msgspec.Struct, frozen=True):
    """Series over one x."""

    id: str
    title: str
    x: Floats
    series: Sequence[Series]
    x_axis: Axis = "seconds"
    """`nines` shows -log10(1 - share) as a percentile"""
    y_axis: Axis = "number"
    x_label: str = ""
    limits: Sequence[Limit] = ()
    together: str = ""
    """charts of the same name share cursor and zoom"""
    note: str = ""
    shade: Shade | None = None

    @property
    def caption(self) -> str:
        """The note, and which axes are logarithmic."""
        axes = [name for name, axis in (("x", self.x_axis), ("y", self.y_axis)) if axis == "log"]
        scale = f"logarithmic {' and '.join(axes)} axis" if axes else ""
        return "; ".join(filter(None, (self.note, scale)))

    @property
    def is_empty(self) -> bool:
        """Whether no value can be drawn."""
        drawn = [np.isfinite(one.values) & ((one.values > 0) | (self.y_axis != "log")) for one in self.series]
        return not (np.isfinite(self.x).any() and np.any(drawn))


class Cell(msgspec.Struct, frozen=True):
    """A cell with a colour or a link."""

    text: str
    status: Status = "plain"
    link: str = ""
    """a file beside the page, or a section of it"""


class PageTable(msgspec.Struct, frozen=True):
    """Rows of cells."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    """one without any is not shown"""
    marked: frozenset[int] = frozenset()
    """numbers of the rows to emphasize"""
    folded: str = ""
    """the title under which it is folded away"""


class Gauge(msgspec.Struct, frozen=True):
    """A measured value as a part of its limit."""

    label: str
    share: float
    text: str

    @property
    def status(self) -> Status:
        """Good until the limit, with a warning for its last tenth."""
        return limit_status(self.share)

    @property
    def percent(self) -> float:
        """The width of its bar, which ends at 125 % of the limit."""
        return round(min(self.share, 1.25) / 1.25 * 100, 2)


class Section(msgspec.Struct, frozen=True):
    """A heading with sentences, gauges, charts and tables, in this order."""

    id: str
    title: str
    lines: Sequence[str] = ()
    gauges: Sequence[Gauge] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[PageTable] = ()
    links: Mapping[str, str] = msgspec.field(default_factory=dict)
    """name of a file beside the page, by the text of its link"""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        tables = any(table.rows for table in self.tables)
        return not (self.lines or self.gauges or self.charts or tables or self.links)


class Badge(msgspec.Struct, frozen=True):
    """A word of the verdict."""

    text: str
    status: Status
    link: str = ""
    """the section that explains it"""


class Tile(msgspec.Struct, frozen=True):
    """A figure of the headline."""

    value: str
    """with its unit"""
    name: str
    status: Status = "plain"
    link: str = ""
    """the section that explains it"""


class Page(msgspec.Struct, frozen=True):
    """One HTML file."""

    title: str
    subtitle: str
    badges: Sequence[Badge]
    reasons: Sequence[str]
    figures: Sequence[Tile]
    sections: Sequence[Section]
    footer: str = ""


def write_page(path: Path, page: Page) -> None:
    """Write the page completely or not at all. Raises OSError."""
    text = render(page).encode()
    with atomic_write(path) as file:
        file.write(text)


def render(page: Page) -> str:
    """The page's HTML, without the library of charts where it has none."""
    if not any(section.charts for section in page.sections):
        return rendered(page, "page.html", "", asset("page.css"), licence="", data="{}")
    style = asset("uPlot.min.css") + asset("page.css")
    return rendered(page, "page.html", _script(), style, licence=asset("uPlot.LICENSE"), data=_data(page))


def rendered(page: Page, template: str, script: str, style: str, **parts: Any) -> str:
    """The HTML by a template, which gets ``parts`` too. Only this script can run in it."""
    sections = [section for section in page.sections if not section.is_empty]
    html: str = (
        _environment()
        .get_template(template)
        .render(
            page=page,
            sections=sections,
            ids={section.id for section in sections},
            style=style,
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            **parts,
        )
    )
    return html


def _data(page: Page) -> str:
    charts = {chart.id: _chart(chart) for section in page.sections for chart in section.charts}
    text = json.dumps(charts, separators=(",", ":"), allow_nan=False)
    # "<" opens a tag or comment; U+2028 and U+2029 end a line of JavaScript.
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _chart(chart: Chart) -> dict[str, Any]:
    return {
        "x": _numbers(chart.x),
        "xAxis": chart.x_axis,
        "yAxis": chart.y_axis,
        "xLabel": chart.x_label,
        "together": chart.together,
        "limits": [asdict(limit) for limit in chart.limits],
        "series": [
            {
                "label": one.label,
                "color": one.color,
                "style": one.style,
                "y": _numbers(one.values),
                "names": list(one.names),
            }
            for one in chart.series
        ],
        "shade": None if chart.shade is None else asdict(chart.shade),
    }


def _numbers(values: Floats) -> list[float | int | None]:
    """Five significant digits; null where there is no value."""
    return [_short(value) if math.isfinite(value) else None for value in np.asarray(values, float).tolist()]


def _short(value: float) -> float | int:
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


@cache
def asset(name: str) -> str:
    """A file of styles or scripts, for the page itself."""
    return (_HERE / "assets" / name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    """uPlot without its first comment, which holds an address, and our script."""
    _, _, uplot = asset("uPlot.iife.min.js").partition("*/")
    return f"{uplot}\n{asset('page.js')}"


@cache
def _environment() -> Any:
    import jinja2

    class Compiled(jinja2.FileSystemBytecodeCache):
        """Where nothing can be kept, each process compiles its templates."""

        def load_bytecode(self, bucket: Any) -> None:
            with suppress(OSError):
                super().load_bytecode(bucket)

        def dump_bytecode(self, bucket: Any) -> None:
            if not sys.dont_write_bytecode:
                with suppress(OSError):
                    Path(self.directory).mkdir(exist_ok=True)
                    super().dump_bytecode(bucket)

    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    # Compiling takes a tenth of a short run's CPU. What it gives depends on these, too.
    version = hashlib.sha256(repr((jinja2.__version__, options)).encode()).hexdigest()[:16]
    templates = _HERE / "templates"
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        bytecode_cache=Compiled(str(templates / "__pycache__"), f"%s-{version}.jinja"),
        undefined=jinja2.StrictUndefined,
        **options,
    )
