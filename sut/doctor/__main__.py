"""``python -m sut.doctor``: what ``./mlperf doctor`` starts."""

from typing import TYPE_CHECKING

from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from sut.doctor.doctor_options import DoctorOptions


def main(argv: list[str]) -> int:
    """Parse flags, look at everything, and return the exit code."""
    from harness.cli.door import called
    from sut.doctor.doctor_options import PROGRAM, parse_options

    options = parse_options(argv)
    return exit_code_of(called(PROGRAM), "info", lambda: _run(options))


def _run(options: "DoctorOptions") -> int:
    from harness.cli.signals import interruptible

    with interruptible():
        # Everything heavy is imported only when there is something to do.
        from sut.doctor.examination import examine

        return examine(options)


if __name__ == "__main__":
    run_main(main)
