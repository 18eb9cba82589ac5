"""The verdict: the worst reason decides, and nothing gets better by getting worse."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thetahat.identification.verdict import LEVELS, Verdict, judge, judge_scores, with_verdict
from thetahat.identification.verdict_bodies import compare_masses, is_placeholder
from thetahat.identification.verdict_findings import EFFECTS
from thetahat.identification.verdict_reason import CORRECTED, SUSPECT, WRONG

Answer = dict[str, Any]
FILE = {"mass": 2.0, "com": [0.0, 0.0, 0.1], "inertia_com": [0.02, 0.0, 0.0, 0.02, 0.0, 0.01]}
WORST = {CORRECTED: "good", SUSPECT: "usable", WRONG: "not usable"}


def joint(name: str) -> Answer:
    return {
        "name": name,
        "unit": "N·m",
        "rows_train": 9000,
        "r2_train": 0.999,
        "r2_test": 0.998,
        "rms_test": 0.12,
        "rms_nominal": 2.0,
        "rms_pseudo_inverse": 0.11,
        "noise": {"std": 0.1, "effective_rows": 400.0},
        "motion": {"share": 0.9, "speed": 0.8, "relative_speed": 1.0},
    }


def link(name: str, mass: float = 2.2) -> Answer:
    return {"name": name, "mass": mass, "consistent": True, "nominal": dict(FILE)}


def answer(**changes: Any) -> Answer:
    """A good result of a robot with three joints; changes: of its fields."""
    links = [link(f"link{k}") for k in (1, 2, 3)]
    data = {
        "status": "solved",
        "rank": 20,
        "structural_rank": 20,
        "condition": 25.0,
        "consistent": True,
        "r2": {"train": 0.999, "test": 0.998, "nominal": 0.9},
        "seconds": {"train": 30.0, "test": 12.0},
        "joints": [joint(f"joint{k}") for k in (1, 2, 3)],
        "links": links,
        "findings": [],
        "provenance": {
            "robot": "arm",
            "robot_file": "my arm.urdf",
            "logs": [{"path": "run3.csv"}],
            "settings": {"prior_weight": 3.0, "columns": "q={joint}_pos"},
        },
        **changes,
    }
    return {**data, "plausibility": changes.get("plausibility", compare_masses(data["links"]))}


def changed(where: str, value: Any, data: Answer | None = None) -> Answer:
    """An answer with one field, such as joints.0.r2_test, changed; masses compared anew."""
    data = copy.deepcopy(answer() if data is None else data)
    *path, last = where.split(".")
    part: Any = data
    for key in path:
        part = part[int(key) if key.isdigit() else key]
    part[int(last) if last.isdigit() else last] = value
    return {**data, "plausibility": compare_masses(data["links"])}


def level(data: Answer) -> int:
    return LEVELS.index(judge(data).level)


def finding(kind: str, name: str | None = "joint2", message: str = "") -> Answer:
    return {"kind": kind, "joint": name, "rows": None, "message": message or f"{kind} of {name}"}


def test_a_good_result_is_good_and_says_what_to_do_next() -> None:
    verdict = judge(answer(), "out folder")
    assert (verdict.level, verdict.reasons) == ("good", ())
    assert "6.6 kg in all (6 kg in the file)" in verdict.summary
    assert verdict.next_steps == (
        "thetahat validate 'my arm.urdf' OTHER_LOG --estimate 'out folder'/estimate.json",
    )
    assert shlex.split(verdict.next_steps[0])[-1] == "out folder/estimate.json"


def test_a_condition_number_counts_where_the_prior_decides_what_is_hardly_told_apart() -> None:
    for share, level in ((None, "usable"), (0.8, "usable"), (0.2, "good")):
        verdict = judge({**answer(), "condition": 1e5, "weak_prior_share": share})
        assert verdict.level == level
        assert any("condition number" in reason for reason in verdict.reasons) == (level != "good")


# -- worse is never better -------------------------------------------------------------------------

WORSE: dict[str, Callable[[float], Any]] = {  # from 0: as good as can be, to 1: as bad
    "r2.test": lambda x: 1.0 - 3.0 * x,
    "joints.1.r2_test": lambda x: 1.0 - 4.0 * x,
    "joints.0.rms_test": lambda x: 10.0 * x,
    "joints.2.rms_nominal": lambda x: 5.0 * (1.0 - x),
    "rank": lambda x: round(20 * (1.0 - x)),
    "condition": lambda x: 10.0 ** (6.0 * x),
    "seconds.train": lambda x: 60.0 * (1.0 - x),
    "links.1.mass": lambda x: 2.0 * 10.0 ** (5.0 * x),
    "links.2.mass": lambda x: 2.0 * 10.0 ** (-5.0 * x),
    "joints.0.motion.share": lambda x: 1.0 - x,
    "joints.1.motion.relative_speed": lambda x: 1.0 - x,
    "structural_rank": lambda x: 20 + int(20 * x),
    "r2.nominal": lambda x: x,
}


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(WORSE)),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
    st.dictionaries(st.sampled_from(sorted(WORSE)), st.floats(0.0, 1.0), max_size=3),
)
def test_worse_is_never_better(where: str, a: float, b: float, others: dict[str, float]) -> None:
    data = answer()
    for name, x in others.items():
        data = changed(name, WORSE[name](x), data)
    better, worse = sorted((a, b))
    assert level(changed(where, WORSE[where](better), data)) <= level(
        changed(where, WORSE[where](worse), data)
    )


@pytest.mark.parametrize("where", sorted(WORSE))
def test_everything_weighed_can_spoil_a_good_result(where: str) -> None:
    assert level(changed(where, WORSE[where](0.01))) == 0
    verdict = judge(changed(where, WORSE[where](1.0)))
    assert verdict.level != "good"
    assert verdict.reasons
    assert 1 <= len(verdict.next_steps) <= 3


# -- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mass", [0.001, 0.49, 8.1, 76_000.0])
def test_absurd_masses_are_never_usable(mass: float) -> None:
    verdict = judge(answer(links=[link("link1"), link("link2", mass), link("link3")]))
    assert not verdict.usable
    assert "link2" in verdict.sentence


def test_a_result_in_millinewtons_is_named() -> None:
    verdict = judge(answer(links=[link(f"link{k}", 2_200.0) for k in (1, 2, 3)]))
    assert verdict.level == "not usable"
    assert (
        "6,600 kg, 1,100 times its file's 6 kg: check the unit of the torques" in verdict.headline
    )


def test_a_difference_that_nobody_feels_is_none() -> None:
    links = [link("link1", 20.0), link("link2", 0.02)]
    links[0]["nominal"]["mass"], links[1]["nominal"]["mass"] = 20.0, 0.002
    assert judge(answer(links=links)).level == "good"


def test_masses_that_no_file_states_are_not_compared_but_said() -> None:
    unit = {"mass": 1.0, "com": [0.0] * 3, "inertia_com": [1.0, 0.0, 0.0, 1.0, 0.0, 1.0]}
    assert is_placeholder(unit)
    assert is_placeholder({"mass": 0.0})
    assert not is_placeholder(FILE)
    links = [link("link1"), {**link("link2", 11.0), "nominal": unit}]
    verdict = judge(answer(links=links))
    assert verdict.level == "usable"
    assert "link2 cannot be checked" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("com_outside", 0.0, "good"),
        ("com_outside", 0.03, "usable"),
        ("com_outside", 0.06, "not usable"),
        ("size_ratio", 1.2, "good"),
        ("size_ratio", 2.0, "usable"),
        ("size_ratio", 4.0, "not usable"),
        ("mass_ratio", 3.9, "good"),
        ("mass_ratio", 4.1, "not usable"),
    ],
)
def test_plausibility_that_the_fit_states_is_judged(key: str, value: float, expected: str) -> None:
    facts = compare_masses(answer()["links"])
    facts["links"][2][key] = value
    data = answer(plausibility=facts)
    data["links"][2]["mass"] = 2.0 * facts["links"][2]["mass_ratio"]
    verdict = judge(data)
    assert verdict.level == expected
    assert expected == "good" or "link3" in verdict.reasons[0]


@pytest.mark.parametrize("key", ["on_bound", "given_up"])
@pytest.mark.parametrize("item", ["mass of link2", {"name": "link2", "bound": "mass"}])
def test_bounds_are_named(key: str, item: Any) -> None:
    verdict = judge(answer(plausibility={**compare_masses(answer()["links"]), key: [item]}))
    assert verdict.level == "usable"
    assert "link2" in verdict.reasons[0]


def test_parameters_that_are_no_bodies_are_for_prediction() -> None:
    links = [link("link1"), {**link("link2", -40.0), "consistent": False}]
    verdict = judge(answer(consistent=False, links=links))
    assert verdict.level == "usable"
    assert "not physically consistent" in verdict.sentence
    heavy = [{**link(f"link{k}", 900.0), "consistent": False} for k in (1, 2)]
    assert judge(answer(consistent=False, links=heavy)).level == "not usable"


# -- findings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(EFFECTS))
def test_a_finding_has_the_effect_of_its_kind_and_is_said(kind: str) -> None:
    verdict = judge(answer(findings=[finding(kind, message=f"joint 'joint2': {kind}.")]))
    assert verdict.level == WORST[EFFECTS[kind]]
    assert verdict.reasons == (f"joint 'joint2': {kind}",)


def test_gains_that_differ_leave_the_level_and_come_with_the_command_that_finds_them() -> None:
    found = finding("gain-differences", message="drives whose gains differ would explain it")
    assert judge(answer(findings=[found])).level == "good"
    verdict = judge(answer(findings=[found, finding("drift")]))
    assert verdict.level == "usable"
    assert any("payload" in step and "--known-mass KG" in step for step in verdict.next_steps)


def test_a_kind_that_is_unknown_changes_nothing() -> None:
    assert judge(answer(findings=[finding("ignored-columns", None)])).reasons == ()


def test_joints_with_the_same_finding_share_a_reason() -> None:
    items = [finding("sign", f"joint{k}", f"the sign of joint{k}") for k in (1, 2, 2, 3)]
    assert judge(answer(findings=items)).reasons == (
        "the sign of joint1 (likewise joint2, joint3)",
    )


def test_an_option_that_a_finding_names_is_the_next_step() -> None:
    message = "gravity points 90° away; if so, pass --gravity 0,-9.81,0"
    verdict = judge(answer(findings=[finding("gravity-direction", None, message)]), "out")
    assert verdict.next_steps[0] == (
        "thetahat identify 'my arm.urdf' run3.csv --columns 'q={joint}_pos'"
        " --gravity 0,-9.81,0 --out out"
    )


def test_next_commands_read_the_log_as_it_was_read() -> None:
    data = changed("rank", 1)
    given = data["provenance"]["settings"] | {"units": "q=deg", "topic": "/joints"}
    data = data | {"provenance": data["provenance"] | {"settings": given}}
    assert judge(data).next_steps[0] == (
        "thetahat excite 'my arm.urdf' --after run3.csv --columns 'q={joint}_pos' --units q=deg"
        " --out motion.csv"
    )


# -- scores, excitation, length --------------------------------------------------------------------


def test_a_short_log_is_named_with_how_much_longer_it_must_be() -> None:
    verdict = judge(changed("seconds.train", 1.4))
    assert verdict.level == "usable"
    assert "1.4 s were fitted; record 20 s or more (19 s longer)" in verdict.reasons[0]
    assert verdict.next_steps[0].startswith("thetahat excite 'my arm.urdf' --duration 20")
    scarce = answer(joints=[joint("joint1") | {"noise": {"std": 0.1, "effective_rows": 8.0}}])
    verdict = judge(scarce)
    assert "8 independent torques for 20 parameters; record 150 s or more" in verdict.reasons[0]


def test_low_r2_of_rows_without_torque_is_no_fault_of_the_model() -> None:
    noisy = joint("joint1") | {"r2_test": -0.2, "rms_test": 0.14}
    verdict = judge(answer(joints=[noisy, joint("joint2")]))
    assert verdict.level == "usable"
    assert "too little torque to tell" in verdict.reasons[0]
    useless = noisy | {"rms_test": 0.3}
    assert judge(answer(joints=[useless, joint("joint2")])).level == "not usable"


def test_error_beyond_the_noise_is_named_with_its_size() -> None:
    data = changed("joints.1.rms_test", 0.5, changed("joints.1.r2_test", 0.97))
    assert judge(data).reasons == (
        "the held-out error of joint2 is 0.5 N·m, 5.0 times the noise of the fitted rows"
        " (0.1 N·m): the held-out motion shows what the fitted one does not",
    )


def test_without_held_out_data_nothing_is_good() -> None:
    verdict = judge(answer(r2={"train": 0.999, "test": None, "nominal": None}))
    assert verdict.level == "usable"
    assert "not validated" in verdict.sentence


def test_what_an_answer_does_not_state_is_not_judged() -> None:
    data = answer()
    for key in ("seconds", "findings", "plausibility"):
        del data[key]
    for each in data["joints"]:
        del each["motion"], each["noise"], each["unit"]
    assert judge(data).level == "good"


# -- the verdict itself ----------------------------------------------------------------------------


def texts(verdict: Verdict) -> Iterator[str]:
    yield from (verdict.headline, verdict.sentence, *verdict.reasons)


ORDER = ("904 kg", "link2 (900 kg", "sign", "12 of 20", "saturated")


def test_the_gravest_reason_comes_first_and_the_verdict_is_read_back() -> None:
    data = changed("links.1.mass", 900.0, changed("rank", 12))
    data["findings"] = [finding("saturated"), finding("sign")]
    stated = with_verdict(data, "out")["verdict"]
    verdict = Verdict.from_data(stated)
    assert verdict.as_data() == stated
    assert verdict.level == "not usable"
    assert [word in text for word, text in zip(ORDER, verdict.reasons, strict=True)] == [True] * 5
    assert len(verdict.next_steps) == 3
    assert verdict.headline.startswith("Not usable: the robot would weigh")
    assert all(text in str(verdict) for text in (verdict.headline, *verdict.details))
    assert not any("None" in text or "nan" in text for text in texts(verdict))


def test_scores_on_another_log_keep_the_estimates_verdict() -> None:
    data = answer()
    assert judge_scores(data).level == "good"
    bad = judge(changed("links.1.mass", 900.0))
    assert judge_scores(data, bad).level == "not usable"
    assert judge_scores(changed("r2.test", 0.2)).level == "not usable"
