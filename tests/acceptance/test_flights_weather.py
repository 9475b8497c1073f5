"""Each flight with the weather at its departure: a fast stream beside a slow one, as a batch and live."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops import Stream
from tests.support.rows import rows

ZONE = "America/Los_Angeles"
CLOCK = {"ambiguous": "earliest", "non_existent": "null"}


@pytest.fixture(scope="module")
def departures(shared_data: Path) -> pa.Table:
    """A row for each departure, in order of time (UTC)."""
    clock = pl.col("dep_time")
    local = pl.date("year", "month", "day").cast(pl.Datetime("us")) + pl.duration(
        hours=clock // 100, minutes=clock % 100
    )
    flights = pl.read_parquet(shared_data / "pnw_flights_2014.parquet").with_row_index("flight_number")
    zoned = local.dt.replace_time_zone(ZONE, **CLOCK).dt.convert_time_zone("UTC")  # type: ignore[arg-type]
    columns = zoned.alias("departure"), "flight_number", "origin", "carrier", "dep_delay"
    return flights.select(*columns).drop_nulls("departure").sort("departure", "flight_number").to_arrow()


@pytest.fixture(scope="module")
def weather(shared_data: Path) -> pa.Table:
    """A row for each hour and airport, in order of time (UTC)."""
    return (
        pl.read_parquet(shared_data / "pnw_weather_2014.parquet")
        .select(pl.col("date").dt.replace_time_zone("UTC"), "origin", "temp", "visib")
        .sort("date", "origin")
        .to_arrow()
    )


@pytest.fixture(scope="module")
def expected(departures: pa.Table, weather: pa.Table) -> pl.DataFrame:
    """What Polars finds: the last reading of the airport, of at most three hours before."""
    found = pl.DataFrame(departures).join_asof(
        pl.DataFrame(weather).sort("date"), left_on="departure", right_on="date", by="origin", tolerance="3h"
    )
    return found.sort("flight_number")


def readings(weather: pa.Table) -> Stream:
    """Each reading until the next one of its airport, and for three hours at most."""
    hourly = g.events(weather, start="date", name="weather")
    return hourly.set_duration("3h").clip_by(hourly, on="origin")


def test_there_is_one_reading_for_an_hour(weather: pa.Table) -> None:
    assert not pl.DataFrame(weather).select("date", "origin").is_duplicated().any()


def test_each_flight_has_the_weather_that_holds_when_it_leaves(
    departures: pa.Table, weather: pa.Table, expected: pl.DataFrame, device_name: str
) -> None:
    flights = g.events(departures, start="departure", name="flights")
    joined = flights.join(readings(weather), on="origin", how="left").collect(device=device_name)
    found = pl.DataFrame(joined).sort("flight_number")
    assert found["flight_number"].to_list() == expected["flight_number"].to_list()
    # At three hours sharp Polars still takes a reading, whose lifetime is over then.
    over = (expected["departure"] - expected["date"]).dt.total_hours() >= 3
    exact = expected.with_columns(temp=pl.when(~over.fill_null(value=False)).then("temp"))
    assert found["temp"].equals(exact["temp"], null_equal=True)


def test_an_as_of_join_says_the_same(
    departures: pa.Table, weather: pa.Table, expected: pl.DataFrame, device_name: str
) -> None:
    flights = g.events(departures, start="departure")
    found = flights.asof_join(g.events(weather, start="date"), on="origin", tolerance="3h").collect(device=device_name)
    for column in ("temp", "visib"):
        assert pl.DataFrame(found).sort("flight_number")[column].equals(expected[column], null_equal=True)


def test_the_slow_stream_follows_the_fast_one(departures: pa.Table, weather: pa.Table) -> None:
    """Live: nobody says CTIs of the readings; the flights' CTIs, an hour behind, hold for both."""
    some, seen = departures.slice(0, 3000), weather.slice(0, 400)
    clocks = seen["date"].cast(pa.int64()).to_pylist()

    def query(readings: pa.Table) -> Stream:
        flights = g.events(some, start="departure", name="flights").advance_time(every=50, delay="1h")
        hourly = g.events(readings, start="date", name="weather").advance_time(advance_with=flights)
        return flights.join(hourly.set_duration("3h").clip_by(hourly, on="origin"), on="origin", how="left")

    live = query(seen).start(device="cpu")
    given, at = [], 0
    for first in range(0, some.num_rows, 50):
        batch = some.slice(first, 50)
        now = batch["departure"].cast(pa.int64())[-1].as_py()
        until = next((each for each in range(at, len(clocks)) if clocks[each] > now), len(clocks))
        live.push(seen.slice(at, until - at), input="weather")
        live.push(batch, input="flights")
        given.append(live.results())
        at = until
    assert sum(table.num_rows for table in given) > 2500  # most of it came while the streams ran
    live.close()
    assert rows(pa.concat_tables([*given, live.results()])) == rows(query(seen.slice(0, at)).collect(device="cpu"))
