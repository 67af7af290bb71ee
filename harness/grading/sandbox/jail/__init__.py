"""The code that runs inside the sandbox: standard library only; it never holds an expected output.

It imports little: every module makes every fork dearer, `dataclasses` with `inspect` among the most.
"""
