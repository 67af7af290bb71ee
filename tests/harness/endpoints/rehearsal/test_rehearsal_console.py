"""The lines of a rehearsal while it lasts."""

from harness.endpoints.rehearsal.rehearsal_console import RehearsalConsole


def test_a_warning_of_every_point_is_said_once(capsys):
    console = RehearsalConsole()
    console.warn(["one", "one"])
    console.warn(["one", "another"])
    assert capsys.readouterr().out.split() == ["WARNING", "one", "WARNING", "another"]
