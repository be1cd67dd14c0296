"""Function runs, as both sides see them: the path of a function, its arguments as JSON text, its result as JSON text.

    submit   path_of(func), load(path).packed(args, kwargs)   the text that the run carries
    start    load(path).arguments(text)                       what the function is called with
    end      load(path).result(value)                         the text of the outcome

A type that the function does not take is refused at submit, and again at start: what was submitted by its path alone
was never checked before. Strictly: what a type checker would refuse is refused.
"""

# Over 400 lines: arguments and results, on their way out and back in.

from __future__ import annotations

import functools
import importlib.util
import inspect
import json
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ArgsKwargs, PydanticSerializationError, to_json

from agentq.coordinator import bounds
from agentq.coordinator.errors import Invalid, NotAllowed, quote_input
from agentq.coordinator.model.field_types import describe_error, error_message
from agentq.sdk.errors import ImportFailed
from agentq.sdk.functions import pickles, references, result_store
from agentq.sdk.functions.signatures import (
    CallArguments,
    build_arguments_validator,
    build_result_validator,
    resolve_signature,
)

ALLOWED_OWN_MODULES = ("agentq.worker.rq.job", "agentq.bench.no_op_functions")
"""Modules of agentq with functions that runs call."""
_NOT_JSON = (b"NaN", b"Infinity")
_DIGITS_MAX = 4300
"""Integers of more digits are not read back by Python."""


class PackedArguments(NamedTuple):
    """The arguments of one call: as text, or where positions and keywords cannot be one, as both; and whose results
    they need."""

    text: str | None
    long: CallArguments | None = None
    after: Sequence[str] = ()


def function_path(func: Callable[..., Any]) -> str:
    """Where a worker finds a function: `module:qualname`. Refuses what it could not import."""
    return _import_path(getattr(func, "__agentq_function__", func))


def load_function(path: str) -> Function:
    """The function of a path, imported once."""
    found = _loaded.get(path)
    if found is None:
        found = _loaded[path] = _import_function(path)
    return found


def find_loaded_function(path: str) -> Function | None:
    """The function of a path, if it is here anyway: a submit by path imports nothing."""
    if path not in _loaded and path.partition(":")[0] not in sys.modules:
        return None
    try:
        return load_function(path)
    except ImportFailed:
        # The workers may have other code than we.
        return None


class Function:
    """A function that runs can call."""

    def __init__(self, path: str, run: Callable[..., Any], *, pickled: bool = False, is_task: bool = False) -> None:
        self.path = path
        self.run = run
        self.is_task = is_task
        """Whether its author made it one, so that runs may call it."""
        self.pickled = pickled
        """Whether its arguments and results travel as signed pickles."""
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(run))
        self.signature = resolve_signature(run)
        self._validator = None if self.signature is None else build_arguments_validator(self.signature)
        self._result = None if self.signature is None else build_result_validator(self.signature.return_annotation)

    @property
    def module(self) -> str:
        """Where it is defined; empty where that is not told."""
        found = getattr(self.run, "__module__", None)
        return found if isinstance(found, str) else ""

    @classmethod
    def unseen(cls, path: str) -> Function:
        """A function that is not here, of which nothing is known but its path."""
        if not _PATH_PATTERN.fullmatch(path):
            raise Invalid(f"{path[:80]!r} is not the path of a function; write it like package.module:function.")
        function = cls(path, _raise_import_failed)
        function.signature = function._validator = function._result = None
        return function

    # ---- on the way in

    def packed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PackedArguments:
        """The arguments as a run carries them, checked against the signature."""
        if self.pickled:
            self._bind(args, kwargs)
            return PackedArguments(pickles.sign_pickle((args, kwargs), self.path))
        if kwargs and args:
            named = self._by_name(args, kwargs)
            if named is None:
                return self._long(args, kwargs)
            args, kwargs = (), named
        given = kwargs or args
        try:
            if self._validator is not None:
                self._validator.validate_python(given, strict=True)
            text = _dump_arguments(given)
        except ValueError as error:
            return self._with_runs(args, kwargs, error)
        return PackedArguments(text)

    def texts(self, calls: Sequence[Any]) -> list[str] | None:
        """The arguments of many calls, each a tuple or a dict; None where one of them needs a closer look."""
        if self.pickled or self._validator is None:
            return None
        check, bodies = self._validator.validate_python, []
        try:
            for call in calls:
                check(call, strict=True)
                bodies.append(to_json(call, bytes_mode="base64", inf_nan_mode="constants"))
        except ValueError:
            return None
        together = b"\n".join(bodies)
        if b'"$' in together or any(word in together for word in _NOT_JSON) or max(map(len, bodies)) > _DIGITS_MAX:
            return None
        return together.decode().split("\n")

    def _with_runs(self, args: tuple[Any, ...], kwargs: dict[str, Any], fault: ValueError) -> PackedArguments:
        """The same, with other runs among the arguments: their results are what will be checked, at the start."""
        found: list[str] = []
        try:
            text = _dump_arguments(kwargs or args, references.reference_serializer(found))
        except ValueError as error:
            raise self._invalid(fault if isinstance(fault, ValidationError) else error) from error
        if not found:
            raise self._invalid(fault) from fault
        self._bind(args, kwargs)
        return PackedArguments(text, after=tuple(dict.fromkeys(found)))

    def _long(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PackedArguments:
        """Positions that have no name, and keywords: the run carries both."""
        first = self._part(args, kwargs)
        found: list[str] = []
        body = json.loads(_dump_arguments([list(args), kwargs], references.reference_serializer(found)))
        if first is not None and not found:
            raise self._invalid(first) from first
        return PackedArguments(None, (tuple(body[0]), body[1]), tuple(dict.fromkeys(found)))

    def _part(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ValidationError | None:
        try:
            if self._validator is not None:
                self._validator.validate_python(ArgsKwargs(args, kwargs), strict=True)
        except ValidationError as error:
            return error
        return None

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """All of the arguments by their names, if all have one."""
        if self.signature is None:
            return None
        takes = list(self.signature.parameters.values())[: len(args)]
        if len(takes) < len(args) or any(each.kind is not each.POSITIONAL_OR_KEYWORD for each in takes):
            return None
        twice = next((each.name for each in takes if each.name in kwargs), None)
        if twice is not None:
            raise Invalid(f"{self.path} cannot be called so: it gets the argument {twice!r} twice.")
        return {each.name: value for each, value in zip(takes, args, strict=True)} | kwargs

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            if self.signature is not None:
                self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise Invalid(f"{self.path} cannot be called so: {error}.") from error

    # ---- in the worker

    def arguments(
        self, text: str, run: str | None = None, look_up: references.ResultLookup = references.refuse_lookup
    ) -> CallArguments:
        """What to call it with, from the JSON text that a run carries: an array, or an object of keywords."""
        if references.REFERENCE_MARK in text:
            if pickles.is_signed_pickle(text):
                return self._unsealed(text)
            text = references.resolve_references(text, run, look_up)
        if self._validator is None:
            value = json.loads(text)
            return (tuple(value), {}) if isinstance(value, list) else ((), value)
        try:
            pair: CallArguments = self._validator.validate_json(text, strict=True)
            return pair
        except ValidationError as error:
            raise self._invalid(error) from error

    def arguments_of(
        self,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        run: str | None = None,
        look_up: references.ResultLookup = references.refuse_lookup,
    ) -> CallArguments:
        """What to call it with, from a run that carries positions and keywords."""
        if not args or not kwargs:
            return self.arguments(to_json(kwargs or list(args)).decode(), run, look_up)
        named = self._by_name(tuple(args), kwargs)
        if named is not None:
            return self.arguments(to_json(named).decode(), run, look_up)
        args, kwargs = json.loads(references.resolve_references(to_json([list(args), kwargs]).decode(), run, look_up))
        try:
            if self._validator is None:
                return tuple(args), dict(kwargs)
            pair: CallArguments = self._validator.validate_python(ArgsKwargs(tuple(args), dict(kwargs)))
            return pair
        except ValidationError as error:
            raise self._invalid(error) from error

    def _unsealed(self, text: str) -> CallArguments:
        if not self.pickled:
            raise Invalid(f"{self.path} takes no pickle: it is not a task with pickle=True, and JSON will do.")
        args, kwargs = pickles.load_signed_pickle(text, self.path)
        return tuple(args), dict(kwargs)

    def result(self, value: Any) -> bytes:
        """The JSON text of what it returned; a large one goes to the store, and the text refers to it."""
        if self.pickled:
            return result_store.store_result(pickles.sign_pickle(value, self.path).encode())
        try:
            return result_store.store_result(_dump_result(value))
        except ValueError as error:
            raise Invalid(
                f"{self.path} returned {_with_article(type(value).__name__)} that cannot be kept as JSON: {error}. "
                "Return something that JSON has, or declare the task with pickle=True."
            ) from error

    # ---- whoever asked for it

    def returned(self, text: bytes) -> Any:
        """What it returned, from the JSON text of it."""
        text = result_store.load_result(text)
        if pickles.is_signed_pickle(text.decode()):
            return pickles.load_signed_pickle(text.decode(), self.path)
        if self._result is None:
            return json.loads(text)
        try:
            (value,), _ = self._result.validate_json(b"[%b]" % text)
        except ValidationError as error:
            fault = describe_error(error).removeprefix("0: ")  # it is the only one
            raise Invalid(f"What {self.path} returned is not what it says it returns: {fault}") from error
        return value

    def _invalid(self, error: ValueError) -> Invalid:
        if not isinstance(error, ValidationError):
            fault = str(error).removeprefix("Error serializing to JSON: ").removeprefix("PydanticSerializationError: ")
            return Invalid(f"{self.path} cannot be called so: {fault}.")
        faults = error.errors(include_url=False)
        # A keyword that is not there is why another is missing.
        first = next((each for each in faults if each["type"] == "unexpected_keyword_argument"), faults[0])
        place, *inner = first["loc"] or ("",)
        name = self._name_of(place) + "".join(f".{part}" for part in inner)
        more = f" (and {len(faults) - 1} more fault{'' if len(faults) == 2 else 's'})" if len(faults) > 1 else ""
        given = "" if first["type"].startswith("missing") else f", not {quote_input(first['input'])}"
        what = first["msg"][:1].lower() + first["msg"][1:] if "argument" in first["type"] else error_message(first)
        which = f"the argument {name!r}"
        if first["type"] == "unexpected_positional_argument" and isinstance(place, int):
            which = f"argument {place + 1}"  # which has no name
        return Invalid(f"{self.path} cannot be called so: {which}: {what}{given}{more}.")

    def _name_of(self, place: int | str) -> str:
        names = list(self.signature.parameters) if self.signature is not None else []
        return names[min(place, len(names) - 1)] if isinstance(place, int) and names else str(place)


_loaded: dict[str, Function] = {}
_PATH_PATTERN = re.compile(r"[\w.]+:[\w.]+")


def _raise_import_failed() -> None:
    raise ImportFailed()


def _with_article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _dump_arguments(value: Any, fallback: Callable[[Any], Any] | None = None) -> str:
    """JSON text of arguments, or a ValueError."""
    body = to_json(value, bytes_mode="base64", inf_nan_mode="constants", fallback=fallback)
    if len(body) > bounds.ARGUMENTS_BYTES:
        raise ValueError(f"the JSON of the arguments has {len(body)} bytes; {bounds.ARGUMENTS_BYTES} is the most")
    _check_json(body)
    if b'"$' in body and fallback is None:
        references.check_arguments(json.loads(body))
    return body.decode()


def _dump_result(value: Any) -> bytes:
    body = to_json(value, bytes_mode="base64", inf_nan_mode="constants")
    _check_json(body)
    if body.startswith(b'{"$'):
        references.check_result(json.loads(body))
    return body


def _check_json(body: bytes) -> None:
    """What JSON does not have would not be read back as it was."""
    if any(word in body for word in _NOT_JSON) or len(body) > _DIGITS_MAX:
        json.loads(body, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise PydanticSerializationError(f"{name} has no place in JSON")


def _import_path(func: Any) -> str:
    if isinstance(func, MethodType) and not isinstance(func.__self__, type):
        raise Invalid(f"{func.__qualname__} is a method of one object, which a worker does not have; use a function.")
    if not isinstance(func, FunctionType | BuiltinFunctionType | MethodType):
        raise Invalid(f"{quote_input(func)} is not a function that a worker could import.")
    module, name = func.__module__, func.__qualname__
    if not module:
        raise Invalid(f"{name} belongs to no module that a worker could import; use a function of yours.")
    if "<lambda>" in name or "<locals>" in name:
        raise Invalid(f"{name} has no name that a worker could import; define it at the top of a module.")
    if _is_forbidden_module(module):
        raise Invalid(f"{name} is a function of {module}; a worker calls functions of yours, which may call that.")
    if module == "__main__":
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is None:
            raise Invalid(
                f"{name} stands in the program itself, which a worker cannot import; move it to a module of its own."
            )
        module = spec.name
    return f"{module}:{name}"


def _import_function(path: str) -> Function:
    module_name, _, name = path.partition(":")
    if _is_forbidden_module(module_name):
        raise NotAllowed(f"{path} cannot be called: a worker calls no function of Python's own or of agentq.")
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
            if isinstance(found, ModuleType):
                raise ImportFailed(f"{path} leads into the module {found.__name__}; name that before the colon.")
    except ModuleNotFoundError as error:
        where = "in the folder where it was started, in PYTHONPATH and among what is installed"
        raise ImportFailed(
            f"{path} cannot be imported: {type(error).__name__}: {error}. A worker looks {where}."
        ) from error
    except ImportFailed:
        raise
    except (Exception, SystemExit) as error:
        raise ImportFailed(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    run = getattr(found, "__agentq_function__", found)
    if not callable(run):
        raise ImportFailed(f"{path} is {_with_article(type(run).__name__)}, which cannot be called.")
    if run is found and _is_forbidden_module(_defining_module(run)):
        raise NotAllowed(f"{path} cannot be called: it is no function of the modules of yours.")
    is_task = run is not found
    return Function(path, run, pickled=is_task and getattr(found, "pickle", False) is True, is_task=is_task)


def _defining_module(run: Callable[..., Any]) -> str:
    """The module that defines a function; a method of a list or dict has none of its own."""
    while isinstance(run, functools.partial):
        run = run.func
    return getattr(run, "__module__", None) or "builtins"


@functools.cache
def _is_forbidden_module(module: str) -> bool:
    """Whether runs call no function of a module: `os:getenv` and `subprocess:getoutput` tell what a worker knows.

    A module of yours may have the name of one of Python's; which one counts is what would be imported.
    """
    root = module.partition(".")[0]
    if root == "agentq":
        return module not in ALLOWED_OWN_MODULES
    if root not in sys.stdlib_module_names:
        return root == "__main__" and getattr(sys.modules["__main__"].__spec__, "name", "").startswith("agentq.")
    spec = importlib.util.find_spec(root)
    origin = spec.origin if spec is not None else None
    own = os.path.realpath(sysconfig.get_path("stdlib"))
    return origin in (None, "built-in", "frozen") or os.path.realpath(origin).startswith(f"{own}{os.sep}")
