"""The command ``campaign``: what is missing is done, step by step, until the folder is built and checked."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from harness.analysis.outages import servers_stood, what_stood
from harness.campaign import child
from harness.campaign.advice import advice, calling
from harness.campaign.campaign_console import (
    CampaignState,
    Stop,
    announce,
    command,
    reasons,
    remaining,
    rows,
)
from harness.campaign.campaign_file import Campaign, read_campaign
from harness.campaign.campaign_options import CampaignOptions
from harness.campaign.campaign_page import PAGE, write_campaign_page
from harness.campaign.facts import other_scenarios, require_complete
from harness.campaign.journal import Journal, history, is_open, opened, other_systems
from harness.campaign.origins import other_origins, runs_beside
from harness.campaign.searches import adopt, correct_offline_rate, search_folder, submitted_run, was_too_short
from harness.campaign.servers import ServerCommand, end, first_to_end
from harness.campaign.standing import Standing, standing, standings, write_made
from harness.campaign.steps import Step, missing_files, other_files, steps_of
from harness.campaign.variables import keep
from harness.cli.commands import USERS_FOLDER, shown
from harness.cli.signals import InterruptedRun
from harness.config.rule_checks import round_deviations
from harness.defects import Defects
from harness.errors import EXIT_INVALID, EXIT_SERVER, EXIT_THRESHOLD, EXIT_USAGE, EXIT_VALID, ConfigError
from harness.files import ROOT
from harness.record.provenance import SERVER_COMMAND
from harness.submission.building.source_code import without_git
from harness.submission.tree.origins import BESIDE
from harness.text import SIGNALLED, aligned, how_it_ended, show

_DOOR = str(ROOT / "mlperf.py")
_LOST = {"score": EXIT_THRESHOLD, "test": EXIT_THRESHOLD}
_EARLIER = ("done", "lost", "incomplete")  # the others would begin anew without --restart
_RESTARTED = ("accuracy", "score", "search", "test")  # the others begin anew by themselves
# Those whose programs compare less than a campaign: to them another server command is nothing new.
_CONTINUED = ("accuracy", "search", "test")


def run(options: CampaignOptions) -> int:
    """Print the steps, or do what is missing of them. Returns the exit code; raises HarnessError."""
    campaign = read_campaign(options.file, rehearsal=options.rehearsal)
    missing = list(missing_files(campaign))
    if options.status:
        _show(campaign)
        show(*missing, *_later(campaign))
        return EXIT_VALID
    if options.dry_run:
        _show(campaign, _named(campaign, options.restart), with_commands=True)
    if missing:
        raise ConfigError(f"{campaign.file}: {'; '.join(missing)}")
    require_complete(campaign)
    show(*_later(campaign))
    if options.dry_run:
        return EXIT_VALID
    with opened(campaign.folder) as journal:
        system_id = campaign.info.system_id
        journal.write(event="opened", step="", restart=options.restart, system_id=system_id)
        keep(campaign.folder, campaign.urls())
        servers = ServerCommand(campaign.folder, campaign.file.parent)
        try:
            return _Walk(campaign, journal, servers, _named(campaign, options.restart)).run()
        finally:
            servers.stop()


def _later(campaign: Campaign) -> Iterator[str]:
    """What runs of hours would come before: a refusal of the build, or of those who review the results."""
    if others := other_systems(campaign.folder, campaign.info.system_id):
        yield (
            f"{campaign.results} has runs of {', '.join(others)}, which count as those of "
            f"{campaign.info.system_id}, the system_id now: for another system write results = FOLDER, "
            "another one."
        )
    yield from other_files(campaign)
    yield from other_scenarios(campaign)
    if not campaign.output.is_dir() and (problem := without_git()):
        yield f"The build will stop: {problem}, on the results of these runs."


def _show(campaign: Campaign, anew: Collection[str] = (), *, with_commands: bool = False) -> None:
    steps = steps_of(campaign)
    events = history(campaign.folder) if is_open(campaign.folder) else []
    now, since = _running_step(events) or (None, None)
    found = standings(campaign, steps, {*anew, *_still_anew(events, steps)})
    stop = None if events else _first_stop(campaign, steps, found)
    _show_state(CampaignState(steps, found, now, since, stop))
    show(*(() if stop is None else stop.lines))
    if events and now is None:
        show("A campaign works on it: it checks plans or waits for its servers.")
    if with_commands:
        missing = [step for step in steps if found[step.name].state != "done"]
        more = {one.name: _restarts(one, found[one.name], anew) for one in missing}
        show("", *(f"{one.name}: {command(one, *more[one.name])}" for one in missing), "")


def _show_state(state: CampaignState) -> None:
    show(*aligned(rows(state)), "", remaining(state), *reasons(state))


def _first_stop(campaign: Campaign, steps: Sequence[Step], found: Mapping[str, Standing]) -> Stop | None:
    """The first run that a campaign would not begin, if it comes before a step that is lost."""
    for step in steps:
        if (one := found[step.name]).state == "lost":
            return None
        if one.state != "done" and (stop := _refused(campaign, step, steps, lambda of: found[of.name])):
            return stop
    return None


def _refused(
    campaign: Campaign, step: Step, steps: Sequence[Step], standing_of: Callable[[Step], Standing]
) -> Stop | None:
    """Why a step that is missing is not begun; None where it is."""
    return _of_an_old_round(campaign, step) or _mixed(campaign, step, steps, standing_of)


def _of_an_old_round(campaign: Campaign, step: Step) -> Stop | None:
    """Servers load for minutes; only then would the run itself refuse."""
    if not campaign.strict or step.servers is None:
        return None
    benchmark, _ = campaign.benchmarks[step.name.partition("/")[0]]
    for text in round_deviations(benchmark):
        line = (
            f"The campaign stops before {step.name}, which would be NOT OFFICIAL: {text}; remove round from "
            f'{campaign.file}, or write division = "open" there.'
        )
        return Stop(step.name, (line,))
    return None


def _mixed(
    campaign: Campaign, step: Step, steps: Sequence[Step], standing_of: Callable[[Step], Standing]
) -> Stop | None:
    """Why a step and the runs that are done could not be submitted together; None where they could."""
    others = list(other_origins(campaign, step, steps, standing_of))
    if not others:
        return None
    scenario = step.name.rpartition("/")[0]
    lines = (
        f"The campaign stops before {step.name}: a submission takes no runs of one scenario that have "
        f"different origins. {'; '.join(others)}.",
        f"To make them all once more: {calling(campaign, '--restart', scenario)}",
    )
    return Stop(step.name, lines)


def _still_anew(events: Sequence[Mapping[str, Any]], steps: Sequence[Step]) -> set[str]:
    """The steps that the campaign which works is to begin anew and has not begun yet."""
    anew: set[str] = set()
    for event in events:
        if event["event"] == "opened":
            anew = {step.name for text in event.get("restart", ()) for step in _of_name(steps, text)}
        elif event["event"] == "started":
            anew.discard(event["step"])
    return anew


def _unsettled(step: Step, after: Standing) -> str:
    """Why a step that ended with failures is worth another call, which does only the rest; "" where not."""
    if step.kind == "search":
        return "the search has ended by an error"
    verdict = None if after.record is None else after.record.verdict
    if step.kind != "accuracy" or after.state != "incomplete" or verdict is None:
        return ""
    return next(iter(verdict.reasons), "")


def _running_step(events: Sequence[Mapping[str, Any]]) -> tuple[str, datetime] | None:
    """The step that runs now, and since when."""
    if not events or events[-1]["event"] != "started":
        return None
    try:
        return str(events[-1]["step"]), datetime.fromisoformat(str(events[-1]["at"])).astimezone(UTC)
    except (KeyError, ValueError):
        return None


def _of_name(steps: Sequence[Step], text: str) -> list[Step]:
    return [step for step in steps if step.name == text or step.name.startswith(f"{text.rstrip('/')}/")]


def _named(campaign: Campaign, given: Sequence[str]) -> dict[str, Standing]:
    """The steps that ``--restart`` names, alone or by a part of their names. Raises ConfigError."""
    steps = steps_of(campaign)
    found: dict[str, Standing] = {}
    for text in given:
        one = _of_name(steps, text)
        if not one:
            names = ", ".join(step.name for step in steps)
            raise ConfigError(f"--restart {text}: no such step, expected one of {names}")
        found |= {step.name: standing(campaign, step) for step in one}
    return found


def _restarts(step: Step, before: Standing, anew: Collection[str]) -> Sequence[str]:
    """The flag of a step that is to begin anew."""
    asked = step.name in anew and step.kind in _RESTARTED
    return ("--restart",) if asked or (before.state == "other" and step.kind in _CONTINUED) else ()


class _Walk(msgspec.Struct):
    """The steps of a campaign, one after the other."""

    campaign: Campaign
    journal: Journal
    servers: ServerCommand
    anew: dict[str, Standing]
    """steps to begin anew, and how they stood"""
    reasons: list[str] = msgspec.field(default_factory=list)
    """why it stopped"""
    again: set[str] = msgspec.field(default_factory=set)
    """steps that were made once more without a call"""

    def run(self) -> int:
        """Do what is missing; returns the exit code of what stops the campaign, 0 at its end."""
        state = self._state()
        _show_state(state)
        code = self._missing(state.steps)
        self._page()
        if code == EXIT_VALID:
            if any(one.state != "done" for one in state.found.values()):
                state = self._state()
                show("", *aligned(rows(state)))
            show("", self._closing(state.steps, state.found))
        show(f"All runs: {shown(self.campaign.results / PAGE)}")
        return code

    def _closing(self, steps: Sequence[Step], found: Mapping[str, Standing]) -> str:
        folder = self.campaign.output
        for step in steps:
            if step.kind == "check" and found[step.name].text:
                return f"Everything is done: {folder} is built, and its check has issues: {command(step)}"
        return f"Everything is done: {folder} is built and checked."

    def _missing(self, steps: Sequence[Step]) -> int:
        """Do what is missing."""
        checked: set[str] = set()
        for number, planned in enumerate(steps, start=1):
            step = self._now(planned)
            before = self._standing(step)
            if before.state == "done":
                continue
            if before.state == "lost":
                return self._stopped(step, before)
            if stop := _refused(self.campaign, step, steps, self._standing):
                self.reasons = list(stop.lines)
                show("", *self.reasons, file=sys.stderr)
                return EXIT_USAGE
            if code := self._check_first(step, steps[number - 1 :], checked):
                return code
            if code := self._do(number, len(steps), step, before):
                return code
        return EXIT_VALID

    def _page(self, running: str | None = None) -> None:
        """Write the page of all runs, and digests for ``status``; a campaign continues where that fails."""
        try:
            with Defects().cost(PAGE):
                write_campaign_page(self.campaign, self._state(running), self.reasons)
            self.campaign.digests.keep()
        except OSError as error:
            show(f"{PAGE} cannot be written: {error.strerror or error}", file=sys.stderr)

    def _now(self, step: Step) -> Step:
        """The step as it is now: its rate may come from a search that has ended since."""
        return next(one for one in steps_of(self.campaign) if one.name == step.name)

    def _standing(self, step: Step) -> Standing:
        return Standing("missing", "begins anew") if step.name in self.anew else standing(self.campaign, step)

    def _state(self, running: str | None = None) -> CampaignState:
        steps = steps_of(self.campaign)
        found = standings(self.campaign, steps, self.anew)
        stop = None if running else _first_stop(self.campaign, steps, found)
        return CampaignState(steps, found, running, stop=stop)

    def _check_first(self, step: Step, ahead: Sequence[Step], checked: set[str]) -> int:
        """Check the plans of all runs at the same servers before the first of them."""
        if step.servers is None or self.campaign.rehearsal:
            return EXIT_VALID
        for one in ahead:
            wanted = one.servers == step.servers and one.kind in ("performance", "accuracy", "test")
            if not wanted or one.name in checked or one.found_rate:
                continue
            before = self._standing(one)
            if before.state in ("done", "lost"):
                continue
            checked.add(one.name)
            show(f"Checking {one.name} ...")
            more = ("--dry-run", "--log-level", "warning", *_restarts(one, before, self.anew))
            if code := self._call(one, more, quiet=True):
                return self._ended(one, code)
        return EXIT_VALID

    def _do(self, number: int, total: int, step: Step, before: Standing) -> int:
        """One step, to its end; returns the exit code that stops the campaign, or 0."""
        announce(number, total, step, before.text)
        self._page(step.name)
        self.journal.write(event="started", step=step.name, command=list(step.words))
        more = _restarts(step, before, self.anew)
        code = EXIT_VALID if self._adopted(step, before) else self._call(step, more)
        self.anew.pop(step.name, None)
        # A missed target is a score, too.
        counts = code == EXIT_VALID or (
            code == EXIT_THRESHOLD and (step.kind == "score" or not self.campaign.strict)
        )
        if step.kind in ("score", "build", "check") and counts:
            # Outside of the closed division a check with issues ends the campaign, too.
            issues = step.kind == "check" and code == EXIT_THRESHOLD
            write_made(self.campaign, step, "with issues, see the check" if issues else "")
        after = standing(self.campaign, self._now(step))
        self.journal.write(event="ended", step=step.name, exit_code=code, state=after.state, text=after.text)
        if after.state == "done":
            return EXIT_VALID
        if after.state == "lost" and self._corrected(step, after):
            step = self._now(step)
            return self._do(number, total, step, self._standing(step))
        if after.state == "lost":
            return self._stopped(step, after)
        stood = what_stood(after.events)
        # A command that was never ready would end so again; a search that is concluded is done or lost.
        if step.servers is not None and self.servers.died and self.servers.were_ready:
            why = "the servers' command ended"
        elif code == EXIT_INVALID:
            why = stood or _unsettled(step, after)
        else:
            why = ""
        if why and step.name not in self.again:
            client_only = bool(stood or step.kind == "accuracy") and not servers_stood(after.events)
            return self._once_more(number, total, step, why, client_only=client_only)
        if stood:
            code = EXIT_SERVER  # not EXIT_INVALID: the next call may end otherwise
        return self._ended(step, code or EXIT_INVALID, after.text)

    def _once_more(self, number: int, total: int, step: Step, why: str, *, client_only: bool) -> int:
        """The step again, with the campaign's servers started again: one of several may have died alone.

        Not where ``client_only`` stood: loading a model takes minutes.
        """
        self.again.add(step.name)
        self.reasons.clear()
        lines = self.servers.last_lines() if self.servers.died else ()
        show("", *lines, f"{step.name} is tried once more, as this may be all that was wrong: {why}")
        if not client_only:
            self.servers.stop()
        return self._do(number, total, step, self._standing(step))

    def _corrected(self, step: Step, found: Standing) -> bool:
        """Whether the rate of Offline's short run is replaced, once, by that of a run that was too short."""
        record = found.record
        if not step.found_rate or step.name in self.again or record is None or not was_too_short(record):
            return False
        self.again.add(step.name)
        rate = correct_offline_rate(search_folder(step.folder.parent), step.folder, record).rate
        show("", f"{step.name} was too short for its rate, and is made again with target_qps = {rate:g}")
        return True

    def _adopted(self, step: Step, before: Standing) -> bool:
        """Whether the search's own run at the rate that it found is the performance run now."""
        if not step.found_rate or before.state not in ("missing", "other") or step.name in self.anew:
            return False
        run = submitted_run(search_folder(step.folder.parent))
        if run is None:
            return False
        if standing(self.campaign, structs.replace(step, folder=run)).state not in ("done", "lost"):
            return False  # one that is lost would end so again
        adopt(run, step.folder)
        show(f"{run} is the performance run: the search made it at this rate")
        return True

    def _call(self, step: Step, more: Sequence[str], *, quiet: bool = False) -> int:
        """Run the step's program; returns its exit code. Raises InterruptedRun after it has ended."""
        if step.servers is not None:
            self.servers.use(step.servers)
        if step.conf is not None:
            step.conf.write()
        words = [sys.executable, "-I", child.__file__, str(os.getpid()), sys.executable, _DOOR, step.verb]
        process = subprocess.Popen(
            [*words, *step.words, *more],
            cwd=self.campaign.file.parent,
            env=self._environment(step),
            pass_fds=(self.journal.lock,),
            stdout=subprocess.DEVNULL if quiet else None,
            process_group=0,  # the terminal's Ctrl-C is this program's, which ends the other
        )
        return self._watch(process, None if step.servers is None else self.servers.process)

    def _environment(self, step: Step) -> Mapping[str, str]:
        steps = steps_of(self.campaign)
        beside = runs_beside(self.campaign, step, steps, self._standing)
        command = None if step.servers is None else step.servers.command
        return {
            **os.environ,
            USERS_FOLDER: str(Path.cwd()),  # where the commands that the step prints are pasted
            BESIDE: os.pathsep.join(str(one.run_folder) for one in steps if one.name in beside),
            **({SERVER_COMMAND: command} if command is not None else {}),
        }

    def _watch(self, process: "subprocess.Popen[bytes]", server: "subprocess.Popen[bytes] | None") -> int:
        """Wait for a program and, meanwhile, for the servers that it needs: a run without them is ended."""
        try:
            ended = first_to_end([process, *([] if server is None else [server])])
        except InterruptedRun as interruption:
            end(process)
            interruption.add_note(self._again())
            raise
        if ended is process:
            code = process.wait()
            self.servers.were_ready |= server is not None and code == EXIT_VALID
            return code
        end(process)
        self.reasons = [self.servers.obituary()]
        show("", f"campaign: {self.reasons[0]}", file=sys.stderr)
        return EXIT_SERVER

    def _ended(self, step: Step, code: int, why: str = "") -> int:
        """A step did not end as it should: the next call tries again."""
        stops = f"The campaign stops at {step.name}, which {how_it_ended(code)}{f': {why}' if why else ''}."
        self.reasons.append(stops)
        show("", *self._server_log(code), stops, *self._flags(step), self._again(), file=sys.stderr)
        return code if 0 < code < SIGNALLED else EXIT_INVALID

    def _flags(self, step: Step) -> Sequence[str]:
        """Where the flag goes that a build may ask for: a campaign replaces no file that was edited."""
        if step.kind != "build" or not self.campaign.output.is_dir():
            return ()
        return ("Where --force is meant, call the command of this step with it, then continue.",)

    def _server_log(self, code: int) -> Sequence[str]:
        """What the servers' command printed last, where it is to blame."""
        if code != EXIT_SERVER or self.servers.process is None:
            return ()
        log = f"The servers' log: {shown(self.servers.log)}"
        return (*self.servers.last_lines(), log, *self.servers.more_time())

    def _stopped(self, step: Step, found: Standing) -> int:
        """A step is lost: the same again would end the same."""
        lost = f"The campaign stops: {step.name} is lost: {found.text}"
        self.reasons = [lost, *advice(self.campaign, step, found)]
        show("", *self.reasons, file=sys.stderr)
        return _LOST.get(step.kind, EXIT_INVALID)

    def _again(self) -> str:
        anew: list[str] = []
        for step in steps_of(self.campaign):
            earlier = self.anew.get(step.name)
            # One that has begun anew, and was cut off, is another run.
            if earlier and earlier.state in _EARLIER and standing(self.campaign, step) == earlier:
                anew += ["--restart", step.name]
        return f"continue with {calling(self.campaign, *anew)}"
