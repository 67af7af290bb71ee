"""In place of SGLang's server: ``python -P -m sglang.launch_server FLAG...``."""

import os
import sys

sys.path.insert(0, os.environ["CHECKOUT"])
sys.argv[1:1] = ["sglang"]

from tests.documents.server import main  # noqa: E402

main()
