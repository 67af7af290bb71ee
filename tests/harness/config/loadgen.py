"""The real LoadGen in processes of its own: the settings that it reads, the samples that it issues."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

# Each case in a process of its own: LoadGen counts its FromConfig calls, and a second one is an invalid run.
# The parent has imported LoadGen and runs one thread, so a fork is enough, and quick.
EACH_CASE = """
import json, os, sys
import mlperf_loadgen as lg
import numpy as np

def plain(settings):
    names = [name for name in dir(settings) if not name.startswith("_") and name != "FromConfig"]
    values = {name: getattr(settings, name) for name in names}
    return {name: v if isinstance(v, bool | int | float) else str(v) for name, v in values.items()}

def read(number, path, model, scenario):
    settings = lg.TestSettings()
    code = settings.FromConfig(path, model, scenario, 1)
    return code, plain(settings)

def issue(number, scenario, samples, conf, accuracy):
    folder = f"{sys.argv[2]}/{number}"
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

    def answer(ids, indexes):
        nonlocal issued
        issued += len(ids)
        answers = [lg.QuerySampleResponse(number, tokens.ctypes.data, 8, 2) for number in ids]
        if scenario != "Offline":
            lg.FirstTokenComplete(answers)
        lg.QuerySamplesComplete(answers)

    logs = lg.LogSettings()
    logs.log_output.outdir = folder
    logs.log_output.copy_summary_to_stdout = False
    sut = lg.ConstructFastSUT(answer, lambda: None)
    qsl = lg.ConstructQSL(samples, samples, lambda indexes: None, lambda indexes: None)
    lg.StartTestWithLogSettings(sut, qsl, settings, logs, "")
    return issued, plain(settings)

def fork(number, case):
    if child := os.fork():
        return child
    answer = globals()[sys.argv[1]](number, *case)
    with open(f"{sys.argv[2]}/{number}.json", "w") as file:
        json.dump(answer, file)
    os._exit(0)

for child in [fork(*case) for case in enumerate(json.load(sys.stdin))]:
    os.waitpid(child, 0)
"""


def loadgen_reads(cases):
    """LoadGen's return code and settings for each (conf file, model key, LoadGen scenario)."""
    with TemporaryDirectory() as folder:
        return _of_each("read", folder, [[str(path), model, scenario] for path, model, scenario in cases])


def loadgen_issues(folder, cases):
    """Samples issued and LoadGen's settings for each (LoadGen scenario, samples, conf text, accuracy)."""
    return _of_each("issue", folder, list(cases))


def _of_each(function, folder, cases):
    words = [sys.executable, "-c", EACH_CASE, function, str(folder)]
    done = subprocess.run(words, input=json.dumps(cases), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [json.loads(Path(folder, f"{number}.json").read_text()) for number in range(len(cases))]


def loadgen_binary():
    """The extension module, which holds LoadGen's own mlperf.conf and the names of its log's rows."""
    spec = find_spec("mlperf_loadgen")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_bytes()
