"""``python -m harness.campaign``: what ``./mlperf campaign`` starts."""

from typing import TYPE_CHECKING

from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from harness.campaign.campaign_options import CampaignOptions


def main(argv: list[str]) -> int:
    """Parse flags, walk the steps, and return the exit code."""
    from harness.campaign.campaign_options import PROGRAM, parse_options
    from harness.cli.door import called

    options = parse_options(argv)
    return exit_code_of(called(PROGRAM), "info", lambda: _run(options))


def _run(options: "CampaignOptions") -> int:
    from harness.cli.signals import interruptible

    with interruptible():
        # Everything heavy is imported only when there is something to do.
        from harness.campaign.campaign_command import run

        return run(options)


if __name__ == "__main__":
    run_main(main)
