"""The package's face: few names, each found by editors and at run time; old names say where they
went.
"""

from __future__ import annotations

import importlib
import inspect

import pytest

import thetahat as th

MOST_NAMES = 45


def test_there_are_few_names_and_each_is_there() -> None:
    assert len(th.__all__) <= MOST_NAMES
    assert set(dir(th)) == set(th.__all__)
    for name in th.__all__:
        value = getattr(th, name)
        assert inspect.isclass(value) or inspect.isfunction(value), f"th.{name} is {value!r}"
        assert inspect.getdoc(value), f"th.{name} has no docstring"


@pytest.mark.parametrize("name", th.MOVED)
def test_a_name_that_moved_says_where(name: str) -> None:
    with pytest.raises(AttributeError) as refusal:
        getattr(th, name)
    assert f"from {th.MOVED[name]} import {name}" in str(refusal.value)
    assert hasattr(importlib.import_module(th.MOVED[name]), name)


@pytest.mark.parametrize("name", th.RENAMED)
def test_a_name_that_is_gone_says_what_replaces_it(name: str) -> None:
    with pytest.raises(AttributeError, match=r"gone; (use th\.|write: from thetahat\.)"):
        getattr(th, name)


def test_an_unknown_name_lists_near_ones() -> None:
    with pytest.raises(AttributeError, match=r"'inverse_dynamic'; it has .*inverse_dynamics"):
        th.inverse_dynamic  # noqa: B018


def test_a_stage_is_a_module_and_not_callable() -> None:
    for stage in ("model", "data", "identification", "excite"):
        assert not callable(importlib.import_module(f"thetahat.{stage}"))
