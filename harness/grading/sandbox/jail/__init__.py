"""What runs inside the sandbox: standard library only, and nothing here ever holds an expected output."""
