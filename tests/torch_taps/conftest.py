"""Torch warns of its own code; its exporter is told to be quiet where we call it."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "torch_taps" in item.path.parts:
            item.add_marker(pytest.mark.torch)
            for kind in ("DeprecationWarning", "FutureWarning", "UserWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))
