"""The process inside the sandbox: reads JSON lines, runs reward code, writes JSON lines.

It is started as a script of its own (`sandbox.Sandbox` does that) and uses nothing but the standard library. What it
is sent: `["load", number, source, function]` and `["run", number, state]`. What it answers: `{"result": 0 or 1}` (0
after "load", and once when it is ready), `{"result": [sentences]}` from a function `translate`, or `{"refused":
reason}`.
"""

from __future__ import annotations
import __future__

import ast
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

MOST_SOURCE = 8000
REWARD, TRANSLATE = "reward", "translate"
"""Functions that may be asked for: the one returns 0 or 1, the other a list of sentences."""
MOST_SENTENCES, LONGEST_SENTENCE = 80, 200
METHODS = frozenset(
    (
        "get", "keys", "values", "items", "count", "index", "append", "extend", "insert", "pop", "remove", "sort",
        "reverse", "copy", "add", "discard", "update", "union", "intersection", "difference", "issubset", "issuperset",
        "isdisjoint", "lower", "upper", "strip", "split", "join", "startswith", "endswith", "replace", "find",
    )
)  # fmt: skip
BUILTINS: dict[str, Any] = {
    thing.__name__: thing
    for thing in (
        abs, all, any, bool, dict, enumerate, filter, float, frozenset, int, isinstance, len, list, map, max, min,
        range, reversed, round, set, sorted, str, sum, tuple, zip, ArithmeticError, AttributeError, Exception,
        IndexError, KeyError, LookupError, StopIteration, TypeError, ValueError, ZeroDivisionError,
    )
}  # fmt: skip
# Everything else that Python has is refused by its name here, so a new Python cannot let anything in.
_ALLOWED = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For,
    ast.While, ast.If, ast.Break, ast.Continue, ast.Pass, ast.Expr, ast.BoolOp, ast.boolop, ast.BinOp, ast.operator,
    ast.UnaryOp, ast.unaryop, ast.Compare, ast.cmpop, ast.IfExp, ast.Call, ast.keyword, ast.Constant, ast.Attribute,
    ast.Subscript, ast.Slice, ast.Name, ast.expr_context, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp,
    ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.Lambda, ast.NamedExpr, ast.Starred, ast.Try,
    ast.ExceptHandler,
)  # fmt: skip
_WORDS = {
    "Import": "it imports something",
    "ImportFrom": "it imports something",
    "ClassDef": "it defines a class",
    "Global": "it uses `global`",
    "Nonlocal": "it uses `nonlocal`",
    "With": "it uses `with`",
    "Raise": "it raises an error",
    "Delete": "it deletes something",
    "Yield": "it uses `yield`",
    "YieldFrom": "it uses `yield`",
    "Await": "it uses `await`",
    "JoinedStr": "it has an f-string",
    "Assert": "it has an assertion",
    "Match": "it uses `match`",
}


class Refused(Exception):  # noqa: N818  (not an error for users: a verdict that is sent back)
    """Code that may not run, or that did not return what it should."""


def check(source: str, function: str = REWARD) -> CodeType:
    """Compiles code that uses nothing but what is allowed.

    Args:
        function: Name of the function of one argument that it must have.

    Raises:
        Refused: If it is too long, no Python, or uses anything else.
    """
    if len(source) > MOST_SOURCE:
        raise Refused(f"it is longer than {MOST_SOURCE} characters")
    tree = _parsed(ast.parse, source)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        _check_node(node, id(node) in called)
    for statement in tree.body:
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_text and not isinstance(statement, ast.FunctionDef):
            raise Refused(f"it does something outside of functions in line {statement.lineno}")
    functions = [statement for statement in tree.body if isinstance(statement, ast.FunctionDef)]
    if not any(one.name == function and _takes_one(one.args) for one in functions):
        raise Refused(f"it has no function `{function}(state)`")
    # Annotations are not evaluated, so that `state: Dict[str, Any]` needs no import.
    flags = __future__.annotations.compiler_flag
    return _parsed(compile, tree, "<reward>", "exec", flags=flags, dont_inherit=True)


def _parsed(how: Callable[..., Any], *what: Any, **options: Any) -> Any:
    """What Python's parser or compiler makes of code."""
    try:
        return how(*what, **options)
    except (SyntaxError, ValueError) as error:
        raise Refused(f"it is no Python ({str(error)[:100]})") from None
    except (RecursionError, MemoryError):
        raise Refused("it is nested too deeply") from None


def _check_node(node: ast.AST, called: bool) -> None:
    kind, line = type(node).__name__, getattr(node, "lineno", 0)
    if not isinstance(node, _ALLOWED):
        raise Refused(f"{_WORDS.get(kind, f'it uses `{kind}`')} in line {line}")
    if isinstance(node, ast.Attribute) and (node.attr not in METHODS or not called):
        raise Refused(f"it uses `.{node.attr}` in line {line}")
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        raise Refused(f"it has a decorator in line {line}")
    if isinstance(node, ast.ExceptHandler) and node.type is None:
        raise Refused(f"it has a bare `except:` in line {line}")
    for name in (getattr(node, field, None) for field in ("id", "name", "arg")):
        if isinstance(name, str) and "__" in name:
            raise Refused(f"it uses the name `{name[:40]}` in line {line}")


def _takes_one(arguments: ast.arguments) -> bool:
    needed = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    more = [default for default in arguments.kw_defaults if default is None]
    return needed <= 1 <= len(arguments.posonlyargs) + len(arguments.args) and not more


def run(code: CodeType, state: Any, function: str = REWARD) -> int | list[str]:
    """Result of the code for a state.

    Args:
        code: From `check`.
        state: Plain values; the code may change them.

    Raises:
        Refused: If it raises an error or returns anything but 0 and 1, or but a list of sentences.
    """
    space: dict[str, Any] = {"__builtins__": dict(BUILTINS)}
    try:
        exec(code, space)  # noqa: S102  (what `check` let through, in a process without rights)
        result = space[function](state)
    except MemoryError:
        raise
    except RecursionError:
        raise Refused("it calls itself too often") from None
    except Exception as error:
        raise Refused(f"it failed with {type(error).__name__}: {_short(error)}") from None
    if function == TRANSLATE:
        return _sentences(result)
    if type(result) is not int or result not in (0, 1):
        raise Refused(f"it returned {_short(result)}, not the number 0 or 1")
    return result


def _sentences(result: Any) -> list[str]:
    if type(result) is not list or not 1 <= len(result) <= MOST_SENTENCES:
        raise Refused(f"it returned {_short(result)}, not a list of 1 to {MOST_SENTENCES} sentences")
    for sentence in result:
        if type(sentence) is not str or not 1 <= len(sentence) <= LONGEST_SENTENCE:
            raise Refused(f"it returned {_short(sentence)}, not a text of 1 to {LONGEST_SENTENCE} characters")
        if _whole(sentence) != sentence:
            raise Refused("it returned a text with half a surrogate pair, which is no character")
    return result


def _whole(text: str) -> str:
    """A text as files and servers take it: half a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def _short(thing: Any) -> str:
    """A thing in few words, whatever it is: numbers can be too long to be written, lists can hold themselves."""
    if isinstance(thing, BaseException):
        return _whole(" ".join(argument[:80] for argument in thing.args[:2] if isinstance(argument, str))[:100])
    small = thing is None or isinstance(thing, bool | float) or (isinstance(thing, int) and abs(thing) < 10**9)
    return repr(thing) if small else f"a {type(thing).__name__}"


def lock_down(memory: int) -> None:
    """Gives up what code that ran wild could use: new files, sockets, memory beyond so many bytes, processes."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limits = [
        (resource.RLIMIT_AS, used + memory),
        (resource.RLIMIT_NOFILE, 0),  # no file and no socket can be opened; the two pipes stay
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),  # does not bind root
    ]
    for name, limit in limits:
        hard = resource.getrlimit(name)[1]
        lower = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(name, (lower, lower))


def main() -> None:
    """Answers until nobody asks any more; the arguments are computing time per line (seconds) and memory (bytes)."""
    seconds, memory = float(sys.argv[1]), int(sys.argv[2])
    programs: dict[int, tuple[CodeType, str]] = {}
    answer: dict[str, object]
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    lock_down(memory)
    os.write(1, b'{"result": 0}\n')  # ready
    for line in sys.stdin.buffer:
        # When the time is up, the system ends the process; no code can catch that.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            task, number, content, *named = json.loads(line)
            if task == "load":
                programs[number] = check(content, *named), *named
                answer = {"result": 0}
            else:
                code, function = programs[number]
                answer = {"result": run(code, content, function)}
        except Refused as reason:
            answer = {"refused": str(reason)}
        except MemoryError:
            answer = {"refused": "it needs too much memory", "end": True}
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(1, json.dumps(answer).encode() + b"\n")
        if "end" in answer:
            return


if __name__ == "__main__":
    main()
