"""Fixtures of the client's tests."""

import pytest

from sut.client import native_streams, poller


@pytest.fixture(params=["python", "native"])
def is_native(request, monkeypatch):
    """Whether batched streams are read in C."""
    if request.param == "python":
        monkeypatch.setattr(poller, "library", lambda: None)
    elif native_streams.library() is None:
        pytest.skip("./setup.sh has compiled no library")
    return request.param == "native"
