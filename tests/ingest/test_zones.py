"""Local times become the instants that Python's own zone arithmetic says, on every day of every year."""

from __future__ import annotations

import datetime
import random
import zoneinfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_ops.errors import PlanError
from gpu_ops.ingest.rules import AMBIGUOUS, NONEXISTENT, TimeRule
from gpu_ops.ingest.zones import Zone

MICROSECOND = datetime.timedelta(microseconds=1)
EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001
UTC_EPOCH = EPOCH.replace(tzinfo=datetime.UTC)

# The usual ones; a gap of a whole day; changes at midnight, of half an hour, with seconds, in the southern winter.
NAMES = (
    "America/New_York",
    "Europe/Vienna",
    "Pacific/Apia",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Africa/Monrovia",
    "Africa/Casablanca",
    "Asia/Kolkata",
    "UTC",
)


def ticks(text: str) -> int:
    return (datetime.datetime.fromisoformat(text) - EPOCH) // MICROSECOND


def shown(*texts: str) -> np.ndarray:
    return np.array([ticks(text) for text in texts], np.int64)


def instant(text: str) -> int:
    return (datetime.datetime.fromisoformat(text) - UTC_EPOCH) // MICROSECOND


def faults_of(zone: str, text: str) -> dict[TimeRule, list[bool]]:
    found = Zone(zone).to_utc(shown(text), "raise", "raise")[1]
    return {rule: mask.tolist() for rule, mask in found.items()}


def python_says(name: str, local: int, policy: str) -> tuple[int | None, str]:
    """By PEP 495: an instant whose local time is `local`, if there is one."""
    zone = zoneinfo.ZoneInfo(name)
    both = [(EPOCH + local * MICROSECOND).replace(tzinfo=zone, fold=fold) for fold in (0, 1)]
    instants = [(moment - UTC_EPOCH) // MICROSECOND for moment in both]
    exist = [
        (UTC_EPOCH + at * MICROSECOND).astimezone(zone).replace(tzinfo=None) == both[0].replace(tzinfo=None)
        for at in instants
    ]
    if not any(exist):
        return None, "nonexistent"
    return instants[0 if policy == "earliest" else 1], "ambiguous" if instants[0] != instants[1] else ""


@pytest.mark.parametrize("name", NAMES)
@given(
    local=st.lists(
        st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30))  # noqa: DTZ001
        | st.datetimes(datetime.datetime(1880, 1, 1), datetime.datetime(2150, 1, 1)),  # noqa: DTZ001
        max_size=20,
    ),
    policy=st.sampled_from(["earliest", "latest"]),
)
@example(local=[datetime.datetime(2011, 12, 30, 12), datetime.datetime(2011, 12, 29, 12)], policy="latest")  # noqa: DTZ001
def test_agrees_with_python(name: str, local: list[datetime.datetime], policy: str) -> None:
    array = np.array([(moment - EPOCH) // MICROSECOND for moment in local], np.int64)
    found, none = Zone(name).to_utc(array, "earliest" if policy == "earliest" else "latest", "shift_forward")
    _, faults = Zone(name).to_utc(array, "raise", "raise")
    assert none == {}
    for index, each in enumerate(array.tolist()):
        wanted, kind = python_says(name, each, policy)
        if wanted is not None:
            assert found[index] == wanted
        assert bool(faults.get(AMBIGUOUS, np.zeros(len(array)))[index]) == (kind == "ambiguous")
        assert bool(faults.get(NONEXISTENT, np.zeros(len(array)))[index]) == (kind == "nonexistent")


@pytest.mark.slow
def test_every_zone_agrees_with_python_in_all_centuries() -> None:
    chance = random.Random(5)
    for name in sorted(zoneinfo.available_timezones()):
        for year in (*chance.sample(range(2, 9999), 3), *chance.sample(range(1830, 2130), 2)):
            local = ticks(f"{year:04}-01-01") + chance.randrange(364 * 86_400_000_000)
            found, _ = Zone(name).to_utc(np.array([local]), "earliest", "shift_forward")
            wanted, _ = python_says(name, local, "earliest")
            assert wanted is None or found[0] == wanted, (name, year)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Europe/Dublin"])
def test_every_quarter_of_an_hour_of_a_year(name: str) -> None:
    array = np.arange(ticks("2017-01-01"), ticks("2018-01-01"), 900_000_000)
    found, _ = Zone(name).to_utc(array, "latest", "shift_forward")
    for index, each in enumerate(array.tolist()):
        wanted, _ = python_says(name, each, "latest")
        assert wanted is None or found[index] == wanted
    assert (np.diff(found) >= 0).all()


# 01:00   01:59:59.999999 | 03:00        New York, 2019-03-10
#   ======= EST ==========|== EDT ===
#            06:59:59.999999Z | 07:00Z
@pytest.mark.parametrize(
    ("policy", "wanted"),
    [("shift_forward", "2019-03-10T07:00:00+00:00"), ("shift_backward", "2019-03-10T06:59:59.999999+00:00")],
)
def test_a_skipped_time_becomes_an_end_of_the_gap(policy: str, wanted: str) -> None:
    local = shown("2019-03-10T02:00", "2019-03-10T02:59:59.999999")
    found, faults = Zone("America/New_York").to_utc(local, "raise", policy)  # type: ignore[arg-type]
    assert found.tolist() == [instant(wanted)] * 2
    assert faults == {}
    assert faults_of("America/New_York", "2019-03-10T02:00") == {NONEXISTENT: [True]}
    assert faults_of("America/New_York", "2019-03-10T01:59:59.999999") == {}
    assert faults_of("America/New_York", "2019-03-10T03:00") == {}


# 00:59:59.999999 | 01:00 == EDT == 01:59:59.999999 | 01:00 == EST == 01:59:59.999999 | 02:00    New York, 2019-11-03
def test_a_time_that_occurs_twice_has_two_instants() -> None:
    local = shown("2019-11-03T01:00", "2019-11-03T01:59:59.999999")
    earliest, _ = Zone("America/New_York").to_utc(local, "earliest", "raise")
    latest, _ = Zone("America/New_York").to_utc(local, "latest", "raise")
    assert earliest.tolist() == [instant("2019-11-03T05:00:00+00:00"), instant("2019-11-03T05:59:59.999999+00:00")]
    assert (latest - earliest).tolist() == [3_600_000_000] * 2
    assert faults_of("America/New_York", "2019-11-03T01:00") == {AMBIGUOUS: [True]}
    assert faults_of("America/New_York", "2019-11-03T00:59:59.999999") == {}
    assert faults_of("America/New_York", "2019-11-03T02:00") == {}


def test_a_gap_may_be_a_whole_day_and_be_seen_from_its_middle() -> None:
    # Samoa went from 29 December 2011 straight to the 31st.
    for time in ("2011-12-30T00:00", "2011-12-30T12:00", "2011-12-30T23:59:59.999999"):
        forward, _ = Zone("Pacific/Apia").to_utc(shown(time), "raise", "shift_forward")
        assert forward.tolist() == [instant("2011-12-30T10:00:00+00:00")]
        assert faults_of("Pacific/Apia", time) == {NONEXISTENT: [True]}


def test_a_gap_may_span_midnight() -> None:
    # Toronto went from 23:30 to 00:30 on 30 March 1919.
    local = shown("1919-03-30T23:45", "1919-03-31T00:15")
    for part in (local, local[1:], local[:1], local[::-1]):
        forward, _ = Zone("America/Toronto").to_utc(part, "raise", "shift_forward")
        assert set(forward.tolist()) == {instant("1919-03-31T04:30:00+00:00")}


def test_clock_changes_go_on_for_ever() -> None:
    local = shown("2038-07-01", "2150-07-01", "9000-07-01", "9000-01-01")
    found, _ = Zone("America/New_York").to_utc(local, "raise", "raise")
    assert ((found - local) // 3_600_000_000).tolist() == [4, 4, 4, 5]


def test_the_ends_of_time_have_a_local_time_too() -> None:
    local = shown("0001-01-01", "9999-12-31T23:59:59.999999")
    for name in ("America/New_York", "Asia/Kolkata"):
        found, faults = Zone(name).to_utc(local, "raise", "raise")
        assert faults == {}
        assert len(found) == 2


def test_offsets_are_zones_too() -> None:
    for name, hours in (("+05:30", -5.5), ("-0800", 8), ("+00:00", 0)):
        found, faults = Zone(name).to_utc(shown("2020-01-01"), "raise", "raise")
        assert (found - shown("2020-01-01"))[0] == hours * 3_600_000_000
        assert faults == {}


@pytest.mark.parametrize("name", ["Europe/Wien", "", "PDT8", "../../etc/passwd", "+5"])
def test_a_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match="There is no time zone"):
        Zone(name)
