"""Random event patterns: each as a text in EPL, and as the parts that the reference runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.support.pattern_reference import Part

TYPES = ("A", "B", "C")


class _Drawn:
    """What a pattern is drawn with: the tags that are set so far."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw, self.count = draw, 0
        self.lists: set[str] = set()

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def atom(self, tags: set[str]) -> tuple[str, Part]:
        """An event, with a condition on it and on earlier ones."""
        type_name, tag = self.pick(*TYPES), ""
        conditions: list[tuple[str, Any]] = []
        if self.pick(True, False):
            least = self.pick(0, 1, 2)
            conditions.append((f"v > {least}", lambda row, _: row["v"] is not None and row["v"] > least))
        if tags and self.pick(True, True, False):
            earlier = self.pick(*sorted(tags))
            conditions.append(self._condition(earlier))
        if self.pick(True, True, False):
            tag = "abcdefghijklmnopqrstuvwxyz"[self.count]
            self.count += 1
        level = self.pick(0, 0, 0, 0, 1, 2)
        text = f"{tag}={type_name}" if tag else type_name
        text += f"({', '.join(said for said, _ in conditions)})" if conditions else ""
        text += f"@consume({level})" if level else ""
        holds = (lambda row, found: all(test(row, found) for _, test in conditions)) if conditions else None
        if tag:
            tags.add(tag)
        return text, Part("atom", (), {"type": type_name, "tag": tag, "holds": holds, "level": level})

    def _condition(self, tag: str) -> tuple[str, Any]:
        at = f"{tag}[0]" if tag in self.lists else tag

        def of(found: Any) -> Any:
            value = found.get(tag)
            row = (value[0] if value else None) if tag in self.lists else value
            return row or {"k": None, "v": None}

        def known(*values: Any) -> bool:
            return None not in values

        made: tuple[str, Any] = self.pick(
            (f"k = {at}.k", lambda row, found: known(row["k"], of(found)["k"]) and row["k"] == of(found)["k"]),
            (f"v > {at}.v", lambda row, found: known(row["v"], of(found)["v"]) and row["v"] > of(found)["v"]),
            (f"v + {at}.v >= 2", lambda row, found: known(row["v"], of(found)["v"]) and row["v"] + of(found)["v"] >= 2),
            (f"k < {at}.k or v = 0", lambda row, found: _less(row["k"], of(found)["k"]) or row["v"] == 0),
            (f"{at}.v is null or v = {at}.v", lambda row, found: of(found)["v"] is None or row["v"] == of(found)["v"]),
        )
        return made

    def condition(self, type_name: str, own: str, about: str, *, tag: str) -> tuple[str, Part]:
        """An event with a condition on it, and one that has an earlier event as well."""
        tests: list[tuple[str, Any]] = []
        if own:
            tests.append((own, lambda row, _: row["v"] is not None and row["v"] > 0))
        if about:
            tests.append(
                ("k = a.k", lambda row, found: None not in (row["k"], found["a"]["k"]) and row["k"] == found["a"]["k"])
            )
        if about == "more":
            tests.append(self._condition("a"))
        said = f"({', '.join(each for each, _ in tests)})" if tests else ""
        holds = (lambda row, found: all(test(row, found) for _, test in tests)) if tests else None
        told = {"type": type_name, "tag": tag, "holds": holds, "level": 0}
        return (f"{tag}={type_name}" if tag else type_name) + said, Part("atom", (), told)

    def _waits_for_then(self, types: list[str]) -> tuple[str, Part]:
        own, about = self.pick("", "", "v > 0"), self.pick("", "key", "key", "more", "more")
        text, part = self.condition(types[0], own, about, tag=self.pick("b", "b", ""))
        ms = self.pick(0, 500, 1000, 2500)
        return (f"{text} where timer:within({ms} msec)", Part("within", (part,), {"ms": ms})) if ms else (text, part)

    def _waits_for_time(self, types: list[str]) -> tuple[str, Part]:
        del types
        ms = self.pick(1, 500, 1000, 2500)
        return f"timer:interval({ms} msec)", Part("interval", (), {"ms": ms})

    def _waits_for_absent(self, types: list[str]) -> tuple[str, Part]:
        own, about = self.pick("", "", "v > 0"), self.pick("", "key", "key", "more")
        text, part = self.condition(types[1], own, about, tag=self.pick("c", ""))
        return f"not {text}", Part("not", (part,))

    def part(self, depth: int, tags: set[str]) -> tuple[str, Part]:
        """A part; the tags that it sets are added."""
        if not depth:
            if self.pick(True, True, True, True, False):
                return self.atom(tags)
            ms = self.pick(0, 500, 1000, 2500)
            return f"timer:interval({ms} msec)", Part("interval", (), {"ms": ms})
        kind = self.pick(
            "every", "every", "then", "then", "then", "and", "or", "not", "until", "guard", "while", "distinct"
        )
        return getattr(self, f"_{kind}")(depth - 1, tags)  # type: ignore[no-any-return]

    def _every(self, depth: int, tags: set[str]) -> tuple[str, Part]:
        text, part = self.part(depth, tags)
        return f"every ({text})", Part("every", (part,))

    def _distinct(self, depth: int, tags: set[str]) -> tuple[str, Part]:
        inside = set(tags)
        text, part = self.part(depth, inside)
        plain = sorted(inside - self.lists)
        tags |= inside
        if not plain:
            return f"every ({text})", Part("every", (part,))
        tag, ms = self.pick(*plain), self.pick(0, 1500)
        span, names = f", {ms} msec" if ms else "", self.pick("k", "k", "v", "kv")

        def key(found: Any) -> Any:
            event = found.get(tag) or {"k": None, "v": None}
            return [event[name] for name in names]

        said = ", ".join(f"{tag}.{name}" for name in names)
        return f"every-distinct({said}{span}) ({text})", Part("distinct", (part,), {"key": key, "ms": ms})

    def _then(self, depth: int, tags: set[str]) -> tuple[str, Part]:
        first, *more = [self.part(depth, tags) for _ in range(self.pick(2, 2, 3))]
        text, limits = f"({first[0]})", []
        for said, _ in more:
            limit = self.pick(None, None, None, 1, 2)
            text += f" -> ({said})" if limit is None else f" -[{limit}]> ({said})"
            limits.append(limit)
        return text, Part("then", (first[1], *(part for _, part in more)), {"limits": limits})

    def _joined(self, word: str, depth: int, tags: set[str]) -> tuple[str, Part]:
        some = [self.part(depth, tags) for _ in range(self.pick(2, 2, 3))]
        return f" {word} ".join(f"({text})" for text, _ in some), Part(word, tuple(part for _, part in some))

    def _and(self, depth: int, tags: set[str]) -> tuple[str, Part]:
        return self._joined("and", depth, tags)

    def _or(self, depth: int, tags: set[str]) -> tuple[str, Part]:
        return self._joined("or", depth, tags)

    def _not(self, depth: int, tags: set[str]) -> tuple[str, Part]:
        one, other = self.part(depth, tags), self.part(0, set(tags))
        return f"({one[0]}) and not ({other[0]})", Part("and", (one[1], Part("not", (other[1],))))

    def _until(self, depth: int, tags: set[str]) -> tuple[str, Part]:
        before, inside = set(tags), set(tags)
        text, part = self.part(0, inside)
        low = high = self.pick(1, 2, 3)
        said, parts = f"[{low}] ({text})", [part]
        if self.pick(True, False):
            low, high = self.pick((None, None), (1, None), (None, 2), (1, 2), (2, 2))
            ends, end = self.part(min(depth, 1), before)
            bounds = "" if low is None and high is None else f"[{low or ''}:{high or ''}] "
            said, parts = f"{bounds}({text}) until ({ends})", [part, end]
        self.lists |= inside - tags
        tags |= before | inside
        return said, Part("until", tuple(parts), {"low": low, "high": high})

    def _guard(self, depth: int, tags: set[str]) -> tuple[str, Part]:
        text, part = self.part(depth, tags)
        ms = self.pick(1000, 2000, 3500)
        if self.pick(True, True, False):
            return f"({text}) where timer:within({ms} msec)", Part("within", (part,), {"ms": ms})
        most = self.pick(0, 1, 2)
        return f"({text}) where timer:withinmax({ms} msec, {most})", Part(
            "withinmax", (part,), {"ms": ms, "most": most}
        )

    def _while(self, depth: int, tags: set[str]) -> tuple[str, Part]:
        text, part = self.part(depth, tags)
        plain = sorted(tags - self.lists)
        if not plain:
            return text, part
        tag = self.pick(*plain)

        def holds(found: Any) -> bool:
            value = (found.get(tag) or {"v": None})["v"]
            return value is not None and value < 2

        return f"({text}) while ({tag}.v < 2)", Part("while", (part,), {"holds": holds})


def _less(one: Any, other: Any) -> bool:
    return one is not None and other is not None and one < other


@st.composite
def patterns(draw: st.DrawFn) -> tuple[str, Part]:
    """A pattern: its text, and its parts."""
    return _Drawn(draw).part(draw(st.sampled_from([0, 1, 1, 2, 2, 3])), set())


@st.composite
def distinct_matches(draw: st.DrawFn) -> tuple[str, Part]:
    """A pattern of which each match has other keys than those before: its text, and its parts."""
    return _Drawn(draw)._distinct(draw(st.sampled_from([0, 0, 1, 1, 2])), set())


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, Part]:
    """A pattern that waits for something with each event of a stream: its text, and its parts."""
    drawn = _Drawn(draw)
    text, first = drawn.condition("A", drawn.pick("", "", "v > 0"), "", tag="a")
    kinds = drawn.pick("then", "then", "time absent", "time then", "time then absent", "then absent").split()
    types = draw(st.permutations(TYPES))
    waits = [getattr(drawn, f"_waits_for_{kind}")(types) for kind in draw(st.permutations(kinds))]
    said = " and ".join(f"({each})" if len(waits) > 1 else each for each, _ in waits)
    part = Part("and", tuple(each for _, each in waits)) if len(waits) > 1 else waits[0][1]
    return f"every {text} -> ({said})", Part("then", (Part("every", (first,)), part), {"limits": [None]})


events = st.fixed_dictionaries(
    {"k": st.one_of(st.none(), st.sampled_from("xyz")), "v": st.one_of(st.none(), st.integers(0, 3))}
)


@st.composite
def scripts(draw: st.DrawFn, most: int = 14) -> list[tuple[str, Any]]:
    """Steps: events by their type, and moves of the clock."""
    now, steps = 0, list[tuple[str, Any]]()
    for _ in range(draw(st.integers(0, most))):
        if draw(st.sampled_from([True, True, True, False])):
            steps.append((draw(st.sampled_from(TYPES)), draw(events)))
        else:
            now += draw(st.sampled_from([1, 499, 500, 1000, 1500, 4000]))
            steps.append(("", now))
    return steps
