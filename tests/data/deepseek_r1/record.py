"""Records upstream's verdicts: ``python record.py INFERENCE PRM800K``, two git directories or checkouts.

``official.json`` has answers (kind, text, truth) and pairs (given, truth); what deepseek-r1's own
``eval_accuracy.py`` extracts and decides, and what prm800k's ``grade_answer`` decides, is written
beside them.
A new case is added with nulls. Needs pandas, tqdm, sympy 1.14.0 and pylatexenc 2.10.
"""

import json
import subprocess
import sys
import types
from pathlib import Path

FILE = Path(__file__).with_name("official.json")
UPSTREAM_COMMITS = {"inference": "b66003e", "prm800k": "7ecc794"}


def source(repository, path):
    words = ["git", "-C", repository, "show", f"HEAD:{path}"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def module(name, text):
    made = types.ModuleType(name)
    made.__file__ = "/nonexistent/eval_accuracy.py"
    sys.modules[name] = made
    exec(compile(text, name, "exec"), made.__dict__)
    return made


def upstream(inference, prm800k):
    """The evaluator's functions by kind, and prm800k's grade_answer."""
    package = module("grading", "")
    for name in ("math_normalize", "grader"):
        made = module(f"grading.{name}", source(prm800k, f"prm800k/grading/{name}.py"))
        setattr(package, name, made)
    grade_answer = made.grade_answer
    module("transformers", "AutoTokenizer = None")
    evaluator = module("eval_accuracy", source(inference, "language/deepseek-r1/eval_accuracy.py"))
    rules = evaluator.DATASET_EVALUATORS
    kinds = {name: (rule["parse"], rule["evaluate"]) for name, rule in rules.items()}

    def math500(parsed, truth):
        """As the evaluator does, which looks for prm800k in a submodule."""
        return bool(parsed and str(truth) and parsed.strip() and grade_answer(parsed.strip(), str(truth)))

    kinds["math500"] = kinds["math500"][0], math500
    # Programs are run elsewhere.
    kinds["livecodebench"] = kinds["livecodebench"][0], lambda parsed, truth: None
    return kinds, grade_answer


def main():
    kinds, grade_answer = upstream(*sys.argv[1:3])
    cases = json.loads(FILE.read_text("utf-8"))
    for row in cases["answers"]:
        parse, right = kinds[row[0]]
        found = parse(row[1])
        row[3:] = [None, False] if found is None else [str(found), right(found, row[2])]
    for row in cases["pairs"]:
        row[2:] = [bool(grade_answer(row[0], row[1]))]
    groups = (
        f'"{name}": [\n' + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]"
        for name, rows in cases.items()
    )
    FILE.write_text("{\n" + ",\n".join(groups) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
