"""The code that runs inside the sandbox: standard library only; it never holds an expected output."""
