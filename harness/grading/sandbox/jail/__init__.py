"""The code that runs inside the sandbox: standard library only; it never holds an expected output.

It imports little: each loaded module makes every fork slower, `dataclasses` with `inspect` among the most.
"""
