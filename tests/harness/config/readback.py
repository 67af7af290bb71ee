"""LoadGen's own settings, read back from the real LoadGen."""

import json
import subprocess
import sys

# LoadGen's own settings, each read in a process of its own: a second FromConfig in one is an invalid run.
# The parent has imported LoadGen and runs one thread, so a fork is enough, and quick.
READ_BACK = """
import json, os, sys
import mlperf_loadgen as lg

def settings_of(path, model, scenario):
    settings = lg.TestSettings()
    code = settings.FromConfig(path, model, scenario, 1)
    names = [name for name in dir(settings) if not name.startswith("_") and name != "FromConfig"]
    values = {name: getattr(settings, name) for name in names}
    plain = {name: v if isinstance(v, bool | int | float) else str(v) for name, v in values.items()}
    return [code, plain]

for case in json.load(sys.stdin):
    child = os.fork()
    if not child:
        os.write(1, json.dumps(settings_of(*case)).encode() + b"\\n")
        os._exit(0)
    os.waitpid(child, 0)
"""


def loadgen_reads(cases):
    """LoadGen's return code and settings for each (conf file, model key, LoadGen scenario)."""
    asked = json.dumps([[str(path), model, scenario] for path, model, scenario in cases])
    command = [sys.executable, "-c", READ_BACK]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, timeout=120)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(answers) == len(cases)
    return answers
