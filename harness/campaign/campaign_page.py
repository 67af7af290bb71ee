"""campaign.html: the steps and all runs of a campaign, with links to their pages."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from harness.analysis.run_outcome import RunOutcome, Status
from harness.campaign.campaign_console import CampaignState, rows, time_left
from harness.campaign.campaign_file import Campaign
from harness.errors import ConfigError
from harness.peak.ladder.ladder_plan import FOLDER
from harness.report.html.overview_page import overview_page
from harness.report.html.page import Badge, Cell, PageTable, Section, Tile, write_page
from harness.report.outcomes import read_outcomes
from harness.text import duration

PAGE = "campaign.html"
_COLOURS: Mapping[str, Status] = {
    "done": "good",
    "LOST": "bad",
    "STOPS": "bad",
    "failed": "bad",
    "RUNNING": "warn",
}


def write_campaign_page(campaign: Campaign, state: CampaignState, reasons: Sequence[str]) -> None:
    """Write the page beside the runs; ``reasons`` say why the campaign stopped. Raises OSError."""
    write_page(
        campaign.results / PAGE,
        overview_page(
            _outcomes(campaign),
            campaign.results,
            title=f"Campaign of {campaign.info.submitter}, {campaign.info.system_id}",
            subtitle=f"{campaign.file}; {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
            + ("; a rehearsal judges no rate, score or test" if campaign.rehearsal else ""),
            badges=tuple(_badges(campaign, state, reasons)),
            reasons=reasons,
            figures=list(_tiles(state)),
            before=[_steps(state)],
        ),
    )


def _outcomes(campaign: Campaign) -> list[RunOutcome]:
    folders = [campaign.results / name for name in campaign.benchmarks]
    try:
        runs = read_outcomes([folder for folder in folders if folder.is_dir()])
    except ConfigError:
        return []
    return [one for one in runs if FOLDER not in one.folder.relative_to(campaign.results).parts]


def _badges(campaign: Campaign, state: CampaignState, reasons: Sequence[str]) -> Iterator[Badge]:
    done, steps = state.done, len(state.steps)
    if reasons:
        yield Badge("STOPPED", "bad")
    yield Badge(f"{done} OF {steps} STEPS DONE", "good" if done == steps else "warn")
    if campaign.rehearsal:
        yield Badge("REHEARSAL", "warn")


def _tiles(state: CampaignState) -> Iterator[Tile]:
    left, others = time_left(state)
    if left:
        yield Tile(f"at least {duration(left)}", f"of runs left, at the rates asked for{others}")


def _steps(of: CampaignState) -> Section:
    """A table for each benchmark, as narrow as its steps' names within it."""
    _, *lines = rows(of)
    timed = any(expected for _, _, expected, _ in lines)
    tables: dict[str, list[list[str | Cell]]] = {}
    for name, state, expected, result in lines:
        group, _, step = name.rpartition("/") if name.count("/") < 2 else name.partition("/")
        cells: list[str | Cell] = [
            step,
            Cell(state, _COLOURS.get(state, "plain")),
            *([expected] if timed else []),
            result,
        ]
        tables.setdefault(group or "folder to submit", []).append(cells)
    header = ("state", *(["expected"] if timed else []), "result")
    return Section("steps", "Steps", tables=[PageTable((name, *header), one) for name, one in tables.items()])
