"""Types that texts create: their properties one by one, those of other types, or both."""

from __future__ import annotations

import pyarrow as pa
import pytest

from gpu_ops import epl
from gpu_ops.errors import TextError
from tests.support.epl_on_runtime import rows_of

_TYPES = {"Order": {"id": "string", "amount": "int"}}


@pytest.mark.parametrize(
    "schema",
    ["create schema S copyfrom Order", "create schema S as Order", "create schema S(id string, amount int)"],
    ids=["copyfrom", "as", "named"],
)
def test_a_type_has_the_properties_of_another(schema: str) -> None:
    runtime = epl.Runtime(_TYPES)
    every = runtime.deploy(f"{schema}; insert into S select * from Order; select * from S")[-1]
    assert every.schema == pa.schema([("id", pa.string()), ("amount", pa.int32())])
    found = [each for each in runtime.send("Order", {"id": "a", "amount": 5}) if each.statement == every.name]
    assert rows_of(found[0].new) == [{"id": "a", "amount": 5}]


def test_its_own_properties_come_before_those_that_it_copies() -> None:
    runtime = epl.Runtime(_TYPES)
    text = "create schema S(at long) copyfrom Order starttimestamp at endtimestamp at; select * from S"
    (shown,) = runtime.deploy(text)
    assert shown.schema.names == ["at", "id", "amount"]


def test_a_property_is_a_whole_event_or_several() -> None:
    runtime = epl.Runtime(_TYPES)
    runtime.deploy("""
        create schema Pair(first Order, every Order[]);
        insert into Pair select first(*) as first, window(*) as every from Order#length(2);
        @name('s') select first.id as id, every.sumOf(o => o.amount) as total from Pair
    """)
    sent = runtime.send("Order", [{"id": "a", "amount": 5}, {"id": "b", "amount": 7}])
    found = [rows_of(each.new) for each in sent if each.statement == "s"]
    assert found == [[{"id": "a", "total": 5}], [{"id": "a", "total": 12}]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("create schema S copyfrom Ordr", "There is no type of events 'Ordr'. .* Did you mean 'Order'"),
        ("create schema S(id int) copyfrom Order", "'Order' has a property 'id' of another type"),
        ("create schema S(a int, a int)", "Two properties are called 'a'"),
        ("create schema S(a integr)", "There is no type 'integr'"),
        ("create schema S(a int) inherits Order", "no schemas that inherit"),
        ("create variant schema S as Order", "no variant streams"),
        ("create schema S as *", "no schemas of any type"),
    ],
)
def test_wrong(text: str, said: str) -> None:
    with pytest.raises(TextError, match=said):
        epl.Runtime(_TYPES).deploy(text)
