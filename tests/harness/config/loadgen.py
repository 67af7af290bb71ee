"""The real LoadGen in processes of its own: the settings that it reads, the samples that it issues."""

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


# Each test in a process of its own: LoadGen ends badly otherwise, and counts its FromConfig calls.
ISSUE = """
import json, os, sys
import mlperf_loadgen as lg
import numpy as np

def run(folder, scenario, samples, conf, accuracy):
    os.mkdir(folder)
    with open(folder + "/user.conf", "w") as file:
        file.write(conf)
    settings = lg.TestSettings()
    assert settings.FromConfig(folder + "/user.conf", "gpt-oss-120b", scenario, 1) == 0
    settings.scenario = getattr(lg.TestScenario, scenario)
    settings.mode = lg.TestMode.AccuracyOnly if accuracy else lg.TestMode.PerformanceOnly
    for name in ("performance_sample_count_override", "accuracy_sample_count_override"):
        setattr(settings, name, min(getattr(settings, name), samples))
    tokens, issued = np.zeros(2, np.int32), 0

    def issue(ids, indexes):
        nonlocal issued
        issued += len(ids)
        answers = [lg.QuerySampleResponse(number, tokens.ctypes.data, 8, 2) for number in ids]
        if scenario != "Offline":
            lg.FirstTokenComplete(answers)
        lg.QuerySamplesComplete(answers)

    logs = lg.LogSettings()
    logs.log_output.outdir = folder
    logs.log_output.copy_summary_to_stdout = False
    sut = lg.ConstructFastSUT(issue, lambda: None)
    qsl = lg.ConstructQSL(samples, samples, lambda indexes: None, lambda indexes: None)
    lg.StartTestWithLogSettings(sut, qsl, settings, logs, "")
    names = [name for name in dir(settings) if isinstance(getattr(settings, name), bool | int | float)]
    found = {name: getattr(settings, name) for name in names}
    os.write(1, json.dumps([issued, found]).encode() + b"\\n")

for number, case in enumerate(json.load(sys.stdin)):
    child = os.fork()
    if not child:
        run(f"{sys.argv[1]}/{number}", *case)
        os._exit(0)
    os.waitpid(child, 0)
"""


def loadgen_issues(folder, cases):
    """Samples issued and LoadGen's settings for each (LoadGen scenario, samples, conf text, accuracy)."""
    command = [sys.executable, "-c", ISSUE, str(folder)]
    asked = json.dumps(list(cases))
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, timeout=100)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(answers) == len(cases), done.stderr
    return answers
