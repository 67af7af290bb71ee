"""The embedded engine: a real model behind a real HTTP server that the harness starts and stops by itself."""

from sut.servers.embedded.engine import EmbeddedEngine
from sut.servers.embedded.models import EmbeddedModel, tiny_gpt_oss

__all__ = ["EmbeddedEngine", "EmbeddedModel", "tiny_gpt_oss"]
