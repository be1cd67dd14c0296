"""What a function takes: from Python to JSON, and from JSON to what it is called with."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest
from sdk import works
from sdk.works import Customer, Everything, Point

from agentq.coordinator.errors import Invalid, NotAllowed
from agentq.coordinator.model.ids import new_run_id
from agentq.sdk import ImportFailed, task
from agentq.sdk.functions.codec import Function, function_path, load_function


def function(name: str) -> Function:
    return load_function(f"sdk.works:{name}")


def text(name: str, *args: Any, **kwargs: Any) -> str:
    packed = function(name).packed(args, kwargs)
    assert packed.text is not None
    return packed.text


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("double", 5),
        ("move", Point(1, 2.0)),
        ("befriend", Customer(name="ann", bornIn=1980, friends=[Customer(name="bob", bornIn=1)])),
        ("carry", Everything()),
    ],
)
def test_an_argument_arrives_as_what_it_was(name: str, argument: Any) -> None:
    (arrived,), _ = function(name).arguments(text(name, argument))

    assert arrived == argument
    assert type(arrived) is type(argument)


@pytest.mark.parametrize(
    ("name", "value"), [("carry", Everything()), ("befriend", Customer(name="ann", bornIn=1980)), ("move", Point(3))]
)
def test_a_result_comes_back_as_what_it_was(name: str, value: Any) -> None:
    assert function(name).returned(function(name).result(value)) == value


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((1,), {}, "[1]"),
        ((), {"number": 1}, '{"number":1}'),
    ],
)
def test_positions_are_an_array_and_keywords_an_object(
    args: tuple[Any, ...], kwargs: dict[str, Any], expected: str
) -> None:
    assert text("double", *args, **kwargs) == expected


def test_positions_beside_keywords_become_keywords_where_they_have_names() -> None:
    assert text("add", 1, two=2) == '{"one":1,"two":2}'


def test_positions_without_a_name_stay_beside_the_keywords() -> None:
    packed = function("plain").packed(("a", 1, 2), {"third": 4.0, "extra": True})

    assert packed.long == (("a", 1, 2), {"third": 4.0, "extra": True})
    args, kwargs = function("plain").arguments_of(*packed.long)
    assert works.plain(*args, **kwargs) == ["a", 1, [2], 4.0, {"extra": True}]


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "complaint"),
    [
        ("double", ("1",), {}, "'number': it should be a whole number, not '1'"),
        ("double", (True,), {}, "'number'.*not True"),
        ("double", (), {}, "'number': missing required argument"),
        ("double", (1, 2), {}, "unexpected positional argument"),
        ("double", (1,), {"number": 2}, "the argument 'number' twice"),
        ("double", (), {"number": 1, "nummer": 2}, "'nummer'"),
        ("move", ({"x": 1},), {}, "'point': it should be an instance of Point"),
        ("plain", ("a", "b"), {}, "'second'"),
        ("plain", ("a", 1, "c"), {}, "'rest'"),
        ("plain", ("a", 1), {"third": "x"}, "'third'"),
        ("plain", ("a", 1), {"more": 1}, "'more'"),
        ("bare", (float("nan"),), {}, "NaN has no place in JSON"),
        ("bare", (object(),), {}, "JSON has nothing for the type object"),
        ("bare", ([{"$run": new_run_id()}],), {}, "stands for a run"),
        ("open_to_all", (), {"$pickle": "", "hmac": ""}, "agentq's own"),
        ("bare", ("x" * 2_000_000,), {}, "1048576 is the most"),
        ("bare", (10**5000,), {}, "."),
        ("half_known", (1, "x"), {}, "'two'"),
        ("loose", ({"name": "x"}, "x"), {}, "'two'"),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Invalid, match=complaint):
        function(name).packed(args, kwargs)


@pytest.mark.parametrize("arguments", ['["1"]', "[]", "[1,2]", '{"n":1}', '{"number":"1"}', "[1.5]"])
def test_a_wrong_argument_is_refused_at_the_start_too(arguments: str) -> None:
    with pytest.raises(Invalid, match=r"double cannot be called so: (the )?argument "):
        function("double").arguments(arguments)


@pytest.mark.parametrize("name", ["bare", "half_known"])
def test_what_has_no_annotation_or_none_to_be_found_takes_anything(name: str) -> None:
    assert function(name).arguments(text(name, {"a": [1, None]}, 2)) == (({"a": [1, None]}, 2), {})


def test_a_string_that_looks_like_a_reference_is_a_string() -> None:
    for value in ("$run", '{"$run": "x"}', {"$run": "x"}, {"a": "$ref", "$other": 1}, {"$ref": "#/$defs/Point"}):
        assert function("bare").arguments(text("bare", value, 2))[0][0] == value


def test_a_result_that_is_a_json_schema_is_one() -> None:
    text = function("returns").result({"$ref": "#/$defs/Point"})

    assert function("returns").returned(text) == {"$ref": "#/$defs/Point"}


@pytest.mark.parametrize(("value", "what"), [("nan", "a float"), ("object", "an object"), ("mark", "a dict")])
def test_a_result_that_json_does_not_have_is_refused(value: str, what: str) -> None:
    with pytest.raises(Invalid, match=f"returned {what} that cannot be kept as JSON"):
        function("returns").result(works.returns(value))


@pytest.mark.parametrize(
    ("func", "path"),
    [
        (works.plain, "sdk.works:plain"),
        (works.double, "sdk.works:double"),
        (works.Holder.static, "sdk.works:Holder.static"),
        (works.Holder.of_class, "sdk.works:Holder.of_class"),
    ],
)
def test_a_function_has_a_path_that_leads_back_to_it(func: Any, path: str) -> None:
    assert function_path(func) == path
    assert load_function(path).run == getattr(func, "__agentq_function__", func)


@pytest.mark.parametrize(
    ("func", "complaint"),
    [
        (lambda: None, "define it at the top of a module"),
        (works.made(), "define it at the top of a module"),
        (works.Holder().method, "a method of one object"),
        (functools.partial(works.plain, "a"), "not a function that a worker could import"),
        (7, "not a function"),
        (len, "a function of builtins"),
        (os.getenv, "a function of os"),
        ("x".upper, "a method of one object|no module"),
    ],
)
def test_what_a_worker_could_not_import_is_refused(func: Any, complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint):
        function_path(func)


@pytest.mark.parametrize(
    "path", ["nowhere:f", "sdk.works:nothing", "sdk.works:Holder.nothing", "sdk.works:Everything.at"]
)
def test_a_path_that_leads_nowhere_says_why(path: str) -> None:
    with pytest.raises(ImportFailed, match=path):
        load_function(path)


def test_a_path_that_leads_to_no_function_says_to_what() -> None:
    with pytest.raises(ImportFailed, match=r"sdk.works:SEVEN\.int is an int, which cannot be called"):
        load_function("sdk.works:SEVEN.int")


@pytest.mark.parametrize(
    "path",
    [
        *("os:getenv", "subprocess:getoutput", "builtins:eval", "importlib:import_module", "os.path:os.getenv"),
        *("sdk.works:os.getenv", "sdk.works:SETTINGS.copy", "sdk.works:print_out", "sdk.works:environment"),
        *(
            "agentq.sdk.functions.codec:load_function",
            "agentq.coordinator.config.settings:Settings",
            "agentq.bench.no_op_functions:os.getenv",
        ),
    ],
)
def test_nothing_of_python_or_agentq_is_called_by_its_path(path: str) -> None:
    """A token that may submit runs is not to be told the worker's environment, where the server's password is."""
    with pytest.raises((ImportFailed, NotAllowed), match=r"cannot be called|has no attribute|leads into the module"):
        load_function(path)


def test_a_module_of_yours_with_a_name_of_pythons_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyclbr.py").write_text("def fly() -> int:\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert load_function("pyclbr:fly").run() == 1


def test_a_wrong_option_is_refused_where_the_task_is_made() -> None:
    for options in ({"queues": "a"}, {"timeout": 30}, {"timeout": "soon"}, {"retries": -1}, {"priority": 11}):
        with pytest.raises(Invalid):
            task(**options)


def test_a_wrong_number_of_retries_is_told_by_the_name_of_the_option() -> None:
    with pytest.raises(Invalid, match=r"^The option 'retries': it should be a whole number\.$"):
        task(retries="3")  # type: ignore[call-overload]


def test_columns_of_different_lengths_are_refused_and_a_fault_of_theirs_is_not_hidden() -> None:
    with pytest.raises(Invalid, match=r"as many values of each argument: argument 2 is shorter than argument 1\.$"):
        works.add.map([1, 2], [3])
    with pytest.raises(ValueError, match=r"^broken$"):
        works.add.map([1], (works.breaks() for _ in [1]))


def test_bulk_and_single_write_the_same() -> None:
    calls: list[Any] = [(1, 2), {"one": 3, "two": 4}]

    assert function("add").texts(calls) == ["[1,2]", '{"one":3,"two":4}']
    assert function("add").texts([(1, "x")]) is None
