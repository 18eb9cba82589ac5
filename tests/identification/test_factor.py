"""The triangular factor and its least squares, against NIST's certified regressions and exact
identities.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from data_paths import STRD

from thetahat.errors import NotIdentifiable
from thetahat.identification import factor

SETS = (
    "Norris",
    "Pontius",
    "NoInt1",
    "NoInt2",
    "Filip",
    "Longley",
    "Wampler1",
    "Wampler2",
    "Wampler3",
    "Wampler4",
    "Wampler5",
)
# digits: what the order of operations may cost beside the column-scaled QR the figures come from
MARGIN = 0.5
ZERO_STD = 1e-9  # where the certified standard deviation is zero


def nist(name: str) -> tuple[np.ndarray, np.ndarray, dict]:
    """(design matrix, response, certified values)."""
    certified = json.loads((STRD / "strd_linear.json").read_text())[name]
    table = np.genfromtxt(STRD / f"{name}.csv", delimiter=",", names=True)
    y = table["y"]
    model = certified["model"]
    if model.startswith("poly"):
        X = np.vander(table["x"], int(model[4:]) + 1, increasing=True)
    else:
        X = np.column_stack([table[n] for n in certified["columns"] if n != "y"])
        if certified["intercept"]:
            X = np.column_stack([np.ones(len(y)), X])
    return (X if certified["intercept"] or not model.startswith("poly") else X[:, 1:]), y, certified


def digits(value: float, certified: float) -> float:
    """Correct significant digits, 15 at the most."""
    if value == certified:
        return 15.0
    return min(
        15.0, -np.log10(abs(value - certified) / abs(certified) if certified else abs(value))
    )


@pytest.mark.parametrize("name", SETS)
def test_certified_regressions(name: str) -> None:
    X, y, certified = nist(name)
    solution = factor.solve(factor.fold(X, y))
    assert solution.rank == X.shape[1]
    std = (
        solution.residual
        / np.sqrt(max(len(y) - X.shape[1], 1))
        * np.linalg.norm(solution.inverse, axis=1)
    )
    wanted = certified["min_LRE_float64"]["qr_scaled"] - MARGIN
    wanted_std = certified["LRE_scaled_QR"]["std"]
    for k, parameter in enumerate(certified["parameters"]):
        assert digits(solution.x[k], float(parameter["estimate"])) >= wanted, (
            name,
            parameter["name"],
        )
        exact = float(parameter["std_dev"])
        if exact == 0.0:
            assert std[k] <= ZERO_STD
        else:
            assert digits(std[k], exact) >= wanted_std - MARGIN, (name, parameter["name"], "std")


def test_normal_equations_would_fail_the_same_check() -> None:
    """The check can fail: by normal equations Filip has no correct digit."""
    X, y, certified = nist("Filip")
    x = np.linalg.lstsq(X.T @ X, X.T @ y, rcond=0.0)[0]
    assert (
        min(digits(x[k], float(p["estimate"])) for k, p in enumerate(certified["parameters"]))
        < certified["min_LRE_float64"]["qr_scaled"] - MARGIN
    )


@pytest.mark.parametrize("seed", range(5))
def test_merge_is_batch_for_any_split_and_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(500, 12)) * 10.0 ** rng.uniform(-4, 4, 12), rng.normal(size=500)
    order = rng.permutation(500)
    cuts = np.sort(rng.choice(np.arange(1, 500), 6, replace=False))
    parts = [factor.fold(A[rows], b[rows]) for rows in np.split(order, cuts)]
    together, apart = factor.fold(A, b), factor.merged(*parts)
    size = np.linalg.norm(np.column_stack([A, b]), axis=0)
    np.testing.assert_allclose(apart / size, together / size, atol=1e-12 * np.sqrt(500))
    np.testing.assert_allclose(
        factor.solve(apart).x * size[:-1], factor.solve(together).x * size[:-1], rtol=1e-11
    )


def test_rank_short_names_the_direction() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(100, 4)) * [1.0, 1e-6, 1e6, 1.0]
    A[:, 3] = 2.0 * A[:, 0]
    solution = factor.solve(factor.fold(A, A @ [1.0, 2.0, 3.0, 4.0]))
    assert solution.rank == 3
    direction = solution.directions[:, 0] / solution.directions[0, 0]
    np.testing.assert_allclose(direction, [1.0, 0.0, 0.0, -0.5], atol=1e-6)
    assert solution.residual < 1e-12 * np.linalg.norm(A @ [1.0, 2.0, 3.0, 4.0])


def test_fewer_rows_than_columns() -> None:
    solution = factor.solve(factor.fold(np.eye(5)[:2], np.array([3.0, 4.0])))
    assert solution.rank == 2
    np.testing.assert_allclose(solution.x, [3.0, 4.0, 0.0, 0.0, 0.0], atol=1e-12)


def test_singular_values_where_divide_and_conquer_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any decomposition serves: U·diag(s)·Vᵀ is the matrix, U and V are orthonormal."""
    matrix = np.random.default_rng(4).normal(size=(9, 5)) * 10.0 ** np.array(
        [0, -3, -40, -90, -160]
    )

    def given_up(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(np.linalg, "svd", given_up)
    U, s, Vt = factor.singular_values(matrix)
    np.testing.assert_allclose((U * s) @ Vt, matrix, atol=1e-14 * s[0])
    np.testing.assert_allclose(U.T @ U, np.eye(5), atol=1e-13)
    np.testing.assert_allclose(Vt @ Vt.T, np.eye(5), atol=1e-13)
    assert np.all(np.diff(s) <= 0.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none_are_named(bad: float) -> None:
    with pytest.raises(NotIdentifiable, match="too large to fit"):
        factor.solve(np.array([[1.0, bad], [0.0, 1.0]]))
