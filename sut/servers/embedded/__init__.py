"""The embedded engine: a real model behind a real HTTP server that the harness starts and stops."""

from sut.servers.embedded.engine import EmbeddedEngine
from sut.servers.embedded.models import EmbeddedModel, model_for, tiny_model

__all__ = ["EmbeddedEngine", "EmbeddedModel", "model_for", "tiny_model"]
