"""Downloads of the live page: made beside everything else, whole or refused in a sentence, whatever the names are made of."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import live_cases as cases
from live_cases import get, served
from thetahat.live.products import Product

MADE = Product(b"{}\n", b"<robot/>", "arm4_identified.urdf", None, b"<!DOCTYPE html>")


def test_nothing_that_waits_runs_in_the_thread_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A download asks for what it needs once, and not where all other requests would wait for it."""
    asked: list[str] = []

    def product() -> Product:
        asked.append(threading.current_thread().name)
        return MADE

    with served(cases.listener()) as server:
        monkeypatch.setattr(server.session, "product", product)
        status, body, headers = get(server, "/download/robot")
        assert (status, body) == (200, MADE.robot)
        assert "arm4_identified.urdf" in headers["content-disposition"]
        assert len(asked) == 1
        assert "thetahat-server" not in asked


@pytest.mark.parametrize(("name", "status", "reason"), [("robot", 409, "estimate.json says why"), ("drive.json", 404, "no file beside it")])
def test_a_file_that_is_not_there_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch, name: str, status: int, reason: str) -> None:
    def product() -> Any:
        return Product(b"{}\n", None, "arm4_identified.urdf", None, b"")

    with served(cases.listener()) as server:
        monkeypatch.setattr(server.session, "product", product)
        found = get(server, f"/download/{name}")
        assert found[0] == status
        assert reason in found[1].decode()
