"""What a tree lacks, a line each with its remedy; what keeps a rehearsal's from being a submission."""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from harness.endpoints.planning.cohorts import cohort_number, publication
from harness.endpoints.planning.regions import LABELS, MANDATORY, ULTRA_LOW_MOST, Regions, regions
from harness.endpoints.planning.rules import rules_of
from harness.endpoints.planning.seed_sets import not_for
from harness.endpoints.planning.shortfalls import CLIENT, not_run, run_shortfalls
from harness.endpoints.run_folder import CONFIG, SUMMARY
from harness.endpoints.tree.point_files import (
    DESCRIBED,
    DESCRIBED_NODE,
    DISCLOSED,
    CurveFacts,
    most_replicas,
    point_yaml,
)
from harness.endpoints.tree.run_facts import RunFacts
from harness.grouping import by_key
from harness.json_files import Json
from harness.text import counted

_IN_TOML = {
    "model_name": "model",
    "model_precision": "model",
    "link_to_model": "model",
    "dataset_name": "dataset",
    "dataset_link": "dataset",
}
_LONGEST_PREVIEW_DAYS = 180
_UNSALTED = "the reference client of 2026-08 salts no prompt of token ids; its point is unsalted until it can"


def missing(runs: Sequence[RunFacts], of: CurveFacts) -> list[str]:
    """Fields and files that the rules ask for and nothing gives."""
    return [
        *_of_system(of),
        *_power(of),
        *_points(runs, of),
        *_of_points(runs, of),
        *_names(runs, of),
        *_accuracy(runs, of),
        *_parallelism(runs, of),
    ]


def why_no_submission(runs: Sequence[RunFacts], lacking: Sequence[str]) -> Iterator[str]:
    """For a tree with points of this client."""
    yield f"{CLIENT}: repeat each point with its config.yaml"
    yield _UNSALTED
    yield from run_shortfalls({one.name: one.run for one in runs if one.run is not None})
    yield from lacking


def _of_system(of: CurveFacts) -> Iterator[str]:
    given = of.system.system
    for field in DESCRIBED:
        if not getattr(given, field):
            yield f"system_desc.json has no {field}; write it into [system] of the TOML"
    yield from _availability(of)
    for number, node in enumerate(of.system.node_types, 1):
        for field in DESCRIBED_NODE:
            if not getattr(node, field):
                yield f"node type {number} has no {field}; write it into its [[node_types]]"
        if not node.accelerators:
            yield f"node type {number} has no accelerators; write its [[node_types.accelerator_info]]"


def _availability(of: CurveFacts) -> Iterator[str]:
    """A status that the division may have, and what it comes with (submission rules, 7.2.5 and 7.3)."""
    given = of.system.system
    status, ready = given.system_availability_status, given.target_availability_date
    if of.system.division == "RDI" and status not in ("RDI", ""):
        yield f"system_desc.json is {status}, but of division RDI; write RDI as its status into [system]"
    elif status == "Available" and not given.availability_url:
        yield "system_desc.json has no availability_url, but is Available; write it into [system]"
    elif status == "Preview" and not ready:
        yield "system_desc.json has no target_availability_date, but is Preview; write it into [system]"
    elif status == "Preview" and of.system.target_cohort:
        published = publication(cohort_number(of.system.target_cohort))
        last = published + timedelta(days=_LONGEST_PREVIEW_DAYS)
        if date.fromisoformat(ready) > last:  # which the reader of the TOML has tried
            yield (
                f"target_availability_date is {ready!r}; write a date such as {last} into [system]: "
                f"{_LONGEST_PREVIEW_DAYS} days after {of.system.target_cohort} is published, or earlier"
            )


def _power(of: CurveFacts) -> Iterator[str]:
    """Only the Standardized division has to normalize by power."""
    if of.system.division == "Standardized":
        yield from (f"{gap}: system_power.json has no total, tps/kW is unknown" for gap in of.power.gaps)


def _points(runs: Sequence[RunFacts], of: CurveFacts) -> Iterator[str]:
    """Points that the curve lacks: of its plan, of a band, of the least number; and a table of none."""
    fixed = [one.concurrency for one in runs if not one.dedicated]
    plan = next((one.run.curve for one in runs if one.run is not None), None)
    measured = {(one.dedicated, one.concurrency) for one in runs}
    planned, left = ((), []) if plan is None else (plan.points, plan.not_run(measured))
    yield from not_run([one.name for one in left])
    known = dict.fromkeys([*(one.name for one in runs), *(one.name for one in planned)])
    for name in (one for one in of.system.points if one not in known):
        yield f"[points.{name}] of the TOML is of no point; write one of {', '.join(known)}"
    if of.c_max <= ULTRA_LOW_MOST:
        yield f"C_max is {of.c_max}; a curve has points with more than {ULTRA_LOW_MOST} in flight, run one"
    elif (bands := _regions(runs, of)) is not None:
        seen = {bands.band(one) for one in fixed}
        for band, span in zip(MANDATORY, bands, strict=False):
            if band not in seen and span.start <= span.end:
                yield f"no point in the {LABELS[band]} band, {span} in flight; run one there"
    else:
        yield f"no point in the Ultra Low band, 1-{ULTRA_LOW_MOST} in flight; run one there"
    if len(fixed) < (least := rules_of(plan).fewest_points):
        yield f"{counted(len(fixed), 'point')} at a fixed concurrency, expected {least} at least; run more"


def _regions(runs: Sequence[RunFacts], of: CurveFacts) -> Regions | None:
    """None where the rules have none: the lowest point is too high, or C_max too low."""
    lowest = of.c_min_override or min(one.concurrency for one in runs if not one.dedicated)
    return regions(lowest, of.c_max) if lowest <= ULTRA_LOW_MOST < of.c_max else None


def _of_points(runs: Sequence[RunFacts], of: CurveFacts) -> Iterator[str]:
    written = [(one, point_yaml(one, of)) for one in runs]
    for field in DISCLOSED:
        if lacking := [one.name for one, point in written if field not in point]:
            table = f"[{_IN_TOML[field]}]" if field in _IN_TOML else "the top"
            yield f"point.yaml has no {field} ({_shown(lacking, runs)}); write it into {table} of the TOML"
    if seeds := [one.name for one, point in written if len(point["runtime_settings"]["runtime"]) < 3]:
        yield (
            f"point.yaml lacks seeds ({_shown(seeds, runs)}): those of {CONFIG} are of no published set; "
            "repeat the point with the ruleset's, or name the file of newer sets with --seed-sets"
        )
    if other := [one.name for one, point in written if _has_other_model_seed(one, point, of)]:
        yield (
            f"model_seed is not that of the seed set ({_shown(other, runs)}): {CONFIG} has another seed in "
            "model_params; repeat the point with the ruleset's"
        )
    if cold := [one.name for one, point in written if "warmup" not in point]:
        yield (
            f"point.yaml has no warmup ({_shown(cold, runs)}): {CONFIG} has one, the run folder not its "
            "counts; write [warm_up] into the TOML"
        )
    unsteady = [one.name for one in runs if one.steady_state is None and not one.dedicated]
    if unsteady:
        yield (
            f"no steady state ({_shown(unsteady, runs)}): {SUMMARY} has no steady_state, and the whole run "
            "counts; run the client's steady-state diagnostics on the folder"
        )
    if not of.offline:
        yield (
            "no Offline point: neither a run with load_pattern max_throughput nor a point at C_max "
            f"({of.c_max}); run one of them"
        )


def _has_other_model_seed(one: RunFacts, point: Json, of: CurveFacts) -> bool:
    published = one.seed_set(of.seed_sets)
    seed = point["runtime_settings"]["runtime"].get("model_seed")
    return published is not None and seed is not None and seed != published.model_seed


def _names(runs: Sequence[RunFacts], of: CurveFacts) -> Iterator[str]:
    """What the points state and the rules do not have: a model, a set of seeds for a cohort, a C_min."""
    rules, first = runs[0].rules, point_yaml(runs[0], of)
    named, cohort = first.get("model_name"), first.get("target_cohort")
    if named and named not in rules.models:
        yield f"model_name is {named}, none of {', '.join(rules.models)}; correct [model] of the TOML"
    if cohort and (refused := not_for(*_seeds(runs[0], of), cohort, rules)):
        yield f"target_cohort is {cohort}, but {refused}; submit to one of these, or run with a newer set"
    override = of.system.system.c_min_override
    fixed = [one.concurrency for one in runs if not one.dedicated]
    if override is not None and (override not in fixed or override > ULTRA_LOW_MOST):
        yield (
            f"c_min_override is {override}, expected the requests in flight of a point, at most "
            f"{ULTRA_LOW_MOST}; correct [system] of the TOML"
        )


def _seeds(one: RunFacts, of: CurveFacts) -> tuple[str, str | None]:
    """The name of its set of seeds, and the cohort that this was published for; None where none is known."""
    if one.run is not None:
        return one.run.curve.seeds.name, one.run.curve.seeds.published
    found = one.seed_set(of.seed_sets)
    return ("", None) if found is None else (found.id, found.cohort)


def _accuracy(runs: Sequence[RunFacts], of: CurveFacts) -> Iterator[str]:
    scored = [one for one in runs if one.accuracy is not None]
    offline = [name for name in of.offline if name not in {one.name for one in scored}]
    fixed, bands = [one.concurrency for one in scored if not one.dedicated], _regions(runs, of)
    if bands and (lacking := bands.unscored(fixed, of.c_min_override)):
        names = ", ".join(LABELS[band] for band in lacking)
        declared = _c_min_of_scores(runs, of, fixed)
        remedy = "run the accuracy dataset at the concurrency of a point there, right after it"
        if declared is not None:
            remedy = f"write c_min_override = {declared} into [system] of the TOML, and every band has one"
        yield f"no accuracy results in the bands {names}; {remedy}"
    if bands:
        yield from _scored_twice([one for one in scored if of.offline.get(one.name) is None], of, bands)
    for name in offline:
        yield f"{name} is the Offline point and has no accuracy results; run its accuracy dataset"


def _c_min_of_scores(runs: Sequence[RunFacts], of: CurveFacts, scored: Sequence[int]) -> int | None:
    """The C_min that the accuracy runs were planned for, where it was above the lowest point.

    config.yaml does not say it, so that a rehearsal's plan, repeated by the official client, loses it.
    """
    if of.c_min_override is not None:
        return None
    points = sorted(one.concurrency for one in runs if not one.dedicated)
    within = (one for one in points if one <= ULTRA_LOW_MOST < of.c_max)
    return next((one for one in within if not regions(one, of.c_max).unscored(scored, one)), None)


def _scored_twice(scored: Sequence[RunFacts], of: CurveFacts, bands: Regions) -> Iterator[str]:
    """The rules take exactly one result of a band (§4.3); that of the Offline point is one more."""
    filled = len(MANDATORY) - len(bands.unscored([one.concurrency for one in scored], of.c_min_override))
    if len(scored) > filled:
        names = by_key((bands.band(one.concurrency), one.name) for one in scored)
        several = "; ".join(
            f"{LABELS[band]}: {', '.join(ones)}"
            for band, ones in names.items()
            if len(ones) > 1 or band not in MANDATORY
        )
        yield (
            f"{len(scored)} accuracy results for {filled} bands ({several}); exactly one counts in each, so "
            "leave the others' accuracy files out"
        )


def _parallelism(runs: Sequence[RunFacts], of: CurveFacts) -> Iterator[str]:
    for one in runs:
        given = of.system.parallelism_of(one.name)
        most = most_replicas(of.system, given)
        if most is None:
            if not given.disaggregated:
                yield (
                    f"{one.name}: no parallelism is declared; write tensor_parallel and data_parallel into "
                    "[parallelism] of the TOML"
                )
                return
        elif (given.data_parallel or 1) > most:
            yield f"{one.name}: data_parallel is {given.data_parallel}, but {most} fit; correct the TOML"
        elif (given.data_parallel or 1) < most and not given.dp_shortfall:
            yield (
                f"{one.name}: data_parallel is {given.data_parallel or 1}, and {most} replicas fit; start as "
                "many, or give the reason as dp_shortfall in the TOML"
            )


def _shown(names: Sequence[str], runs: Sequence[RunFacts]) -> str:
    return "every point" if len(names) == len(runs) else ", ".join(names)
