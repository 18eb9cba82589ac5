"""The port of local workers is shut: who has not the credentials of this run is turned away."""

from __future__ import annotations

import pytest

from thetahat.engine import workers
from thetahat.errors import UsageError

distributed = pytest.importorskip("distributed", reason="workers need dask")


def test_a_stranger_is_refused() -> None:
    """The scheduler runs whatever a client sends it, as the user who started it: nobody else on the
    machine may be one.
    """
    with workers.DaskWorkers(workers=1) as own:
        address = own.client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        assert own.client.submit(sum, [1, 2]).result(timeout=60) == 3
        port = address.rpartition(":")[2]
        strangers = (
            (f"tcp://127.0.0.1:{port}", None),  # in plain text
            (address, distributed.Security.temporary()),  # with credentials of its own
        )
        for place, security in strangers:
            with pytest.raises((OSError, TimeoutError)):
                distributed.Client(place, security=security, timeout=3, set_as_default=False)
        assert own.client.submit(sum, [2, 3]).result(timeout=60) == 5


def test_no_more_workers_than_the_machine_bears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    sizes = {"SC_PHYS_PAGES": 16 * 2**18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr("os.sysconf", lambda name: sizes[name])
    assert workers.most_workers() == 8
    with pytest.raises(UsageError, match=r"--workers is 100000.*1 to 8"):
        workers.DaskWorkers(workers=100_000)
    sizes["SC_PHYS_PAGES"] = 2**18  # 1 GB
    assert workers.most_workers() == 2
