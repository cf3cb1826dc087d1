"""Reward code in its sandbox: what it may do, and that nothing gets out."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.rewards import sandbox_worker
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError, Sandbox, SandboxLimits, shared_sandbox
from rllib_llm_comm.sama.rewards.subgoal_rewards import CodeReward
from tests.refusal import refused

STATE = {"before": {"x": 1}, "after": {"x": 2, "things": ["onion", "dish"]}, "agent": "alice"}


@pytest.fixture(scope="module")
def sandbox():
    made = Sandbox(SandboxLimits(seconds=0.1, megabytes=48))
    yield made
    made.close()


def body(code: str) -> str:
    return "def reward(state):\n" + textwrap.indent(textwrap.dedent(code).strip(), "    ") + "\n"


# ---- what it may do ----------------------------------------------------------------------------------------

GOOD = {
    "plain": body("return 1 if state['after']['x'] > state['before']['x'] else 0"),
    "typed": "def reward(state: Dict[str, Any]) -> int:\n    '''Says so.'''\n    n: int = 1\n    return n\n",
    "helper": "def more(a, b=0):\n    return a > b\n\n" + body("return int(more(state['after']['x'], 1))"),
    "loop": body("""
        count = 0
        for thing in state["after"].get("things", []):
            if thing.lower() == "onion" and thing not in {"dish"}:
                count += 1
        while count > 1:
            count -= 1
        return count
    """),
    "comprehension": body("return int(any(k for k, v in sorted(state['after'].items(), key=lambda p: p[0]) if v))"),
    "exception": body("""
        try:
            return state["nothing"]["here"]
        except (KeyError, TypeError) as error:
            return 1
    """),
    "walrus and slices": body("return 1 if (n := len(state['after']['things'][:1])) == 1 and -n < 0 else 0"),
    "own meaning of a builtin": "def max(sum):\n    return 1\n\n" + body("list = [max(0)]\nreturn list[0]"),
    "other name": "def reward(s, n=3):\n    return 1\n",
}


@pytest.mark.parametrize("source", GOOD.values(), ids=GOOD)
def test_honest_code_runs(sandbox, source):
    sandbox.check(source)
    assert sandbox.run(source, STATE) == 1


def test_nothing_is_kept_from_call_to_call(sandbox):
    source = "def reward(state, seen=[]):\n    seen.append(1)\n    state['x'] = 3\n    return int(len(seen) > 1)\n"
    state = {"x": 1}
    assert [sandbox.run(source, state) for _ in range(3)] == [0, 0, 0] and state == {"x": 1}


# ---- attempts ----------------------------------------------------------------------------------------------

# What Python has by name and the sandbox has not.
NAMES = [
    "eval", "exec", "compile", "input", "print", "breakpoint", "exit", "globals", "locals", "vars", "dir", "getattr",
    "setattr", "delattr", "type", "object", "memoryview", "open", "__import__",
]  # fmt: skip
ESCAPES = {
    **{name: body(f"{name}\nreturn 1") for name in NAMES},
    "import": "import os\n" + body("return 1"), "import inside": body("import os\nreturn 1"),
    "import from": body("from os import system\nreturn 1"), "builtins by name": body("return __builtins__['open']"),
    "write a file": body("open('{canary}', 'w')\nreturn 1"),
    "read a file": body("return len(open('/etc/passwd').read())"),
    "quit by raise": body("raise SystemExit"), "class dict": body("return state.__class__.__mro__"),
    "class tuple": body("return ().__class__.__bases__[0].__subclasses__()"),
    "class by walrus": body("return (x := state).__class__"),
    "generator frame": body("g = (x for x in [1])\nreturn g.gi_frame.f_globals"),
    "own globals": body("return reward.__globals__['__builtins__']"), "own closure": body("return reward.__closure__"),
    "own code": "def helper():\n    return 1\n" + body("helper.__code__ = reward.__code__\nreturn 1"),
    "traceback": body("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    return e.__traceback__.tb_frame"),
    "context of an error": body("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    return e.with_traceback"),
    "format with attributes": body("return '{0.__class__}'.format(state)"),
    "format map": body("return '{x.__class__}'.format_map(state)"),
    "format as a value": body("return list(map(str.format, ['{0.__class__}'], [state]))"),
    "f-string": body("return f'{state}'"), "method as a value": body("f = [].append\nreturn 1"),
    "decorator": "@print\n" + body("return 1"), "decorated by a builtin": "@sorted\n" + body("return 1"),
    "class": "class X:\n    pass\n" + body("return 1"), "class inside": body("class X:\n    x = 1\nreturn 1"),
    "global": body("global len\nlen = 3\nreturn 1"),
    "nonlocal": body("x = 1\ndef f():\n    nonlocal x\n    x = 2\nreturn 1"),
    "dunder function": "def __getattr__(x):\n    return 1\n" + body("return 1"),
    "dunder parameter": "def reward(__builtins__):\n    return 1\n",
    "dunder keyword": body("dict(__class__=1)\nreturn 1"),
    "dunder exception name": body("try:\n    1 / 0\nexcept Exception as __x__:\n    return 1"),
    "with": body("with open('{canary}') as f:\n    return 1"), "async": "async def reward(state):\n    return 1\n",
    "await": "async def f():\n    await f()\n" + body("return 1"), "yield": body("yield 1"),
    "yield from": body("yield from [1]"), "lambda that yields": body("f = lambda: (yield)\nreturn 1"),
    "delete": body("del state['after']\nreturn 1"), "assert": body("assert state\nreturn 1"),
    "bare except": body("try:\n    return 1\nexcept:\n    return 0"),
    "except group": body("try:\n    return 1\nexcept* ValueError:\n    pass\nreturn 1"),
    "match": body("match state:\n    case _:\n        return 1"),
    "code outside": "open('{canary}', 'w')\n" + body("return 1"),
    "default that acts": "def reward(state, x=open('{canary}', 'w')):\n    return 1\n",
    "annotation that acts": "def reward(state: open('{canary}', 'w')) -> (lambda: open)():\n    return y\n",
    "no function": "x = 1\n", "other function": "def test(state):\n    return 1\n",
    "two parameters": "def reward(before, after):\n    return 1\n", "no parameter": "def reward():\n    return 1\n",
    "keyword only": "def reward(*, state):\n    return 1\n", "no code": "", "no python": "return 1 if done",
    "null byte": body("return 1") + "\x00", "too long": body("return 1") + "#" * 9000,
    "encoding declaration": "# -*- coding: rot13 -*-\nqrs erjneq(fgngr): erghea 1\n",
    "homoglyph import": body("ｉｍｐｏｒｔ os\nreturn 1"), "homoglyph dunder": body("return state.＿＿class＿＿"),
    "homoglyph name": body("return ｅｖａｌ('1')"), "semicolons": body("x = 1; import os; return 1"),
    "line continuation": body("return state.\\\n__class__"),
}  # fmt: skip

CAUGHT = "    try:\n        {}\n    except Exception:\n        pass"
BOMBS = {
    "endless loop": body("while True:\n    pass"),
    "endless loop that catches": body("while True:\n" + CAUGHT.format("1 / 0")),
    "loop over a list that grows": body("a = [1]\nfor x in a:\n    a.append(x)\nreturn 1"),
    "sum of a huge range": body("return sum(range(10 ** 12))"), "power tower": body("return 9 ** 9 ** 9"),
    "constant power tower": "def reward(state, x=9 ** 9 ** 9):\n    return 1\n", "shift": body("return 1 << 10 ** 12"),
    "long text": body("return len('x' * 10 ** 10)"), "long list": body("return len([0] * 10 ** 10)"),
    "list of a range": body("return len(list(range(10 ** 10)))"), "doubling": body("x = 'x'\nwhile True:\n    x += x"),
    "nested lists": body("x = []\nwhile True:\n    x = [x, x, list(range(1000))]"),
    "huge format": body("return '%9999999999d' % 1"),
    "huge join": body("return len('x'.join(map(str, range(10 ** 9))))"),
    "replace": body("x = 'x' * 10 ** 6\nreturn len(x.replace('x', x))"), "recursion": body("return reward(state)"),
    "recursion through map": body("return list(map(reward, [state]))[0]"),
    "recursion of lambdas": body("f = lambda g: g(g)\nreturn f(f)"),
    "memory that is caught": body("x = []\nwhile True:\n" + CAUGHT.format("x.append('x' * 10 ** 7)")),
    "deep brackets": body("return " + "(" * 3000 + "1" + ")" * 3000),
    "deep lists": body("return " + "[" * 3900 + "]" * 3900), "deep minus": body("return " + "-" * 7000 + "1"),
    "deep not": body("return " + "not " * 1900 + "1"), "long sum": body("return " + "1+" * 3900 + "1"),
    "deep calls": body("return " + "len(" * 1500 + ")" * 1500),
    "deep lambdas": body("return " + "lambda:" * 1100 + "1"),
    "slow sort": body("return sorted(range(10 ** 7), key=lambda x: -x)[0]"),
    "constant folding": body("return len(" + "(" * 50 + "'x' * 4000" + ") * 4000" * 50 + ")"),
}  # fmt: skip

WRONG = {
    "two": body("return 2"), "minus one": body("return -1"), "true": body("return True"), "a float": body("return 1.0"),
    "a text": body("return '1'"), "nothing": body("x = 1"), "the function": body("return reward"),
    "a generator": body("return (x for x in [1])"), "a list in itself": body("x = []\nx.append(x)\nreturn x"),
    "a huge number": body("return 10 ** 5000"), "not a number": body("return float('nan')"),
    "error": body("return state['none']"), "huge error": body("return int('x' * 10 ** 6)"),
    "error with a huge number": body("return {}[10 ** 5000]"),
}  # fmt: skip


ATTEMPTS = {**ESCAPES, **BOMBS, **WRONG}
WHY = {
    "import inside": "imports .* line 2", "class tuple": r"`\.__subclasses__` in line 2",
    "no function": "outside of functions in line 1", "endless loop": r"more than 0\.1 s", "long list": "memory",
    "recursion": "calls itself", "deep brackets": "Python|deeply", "two": "returned 2,", "true": "returned True,",
    "a huge number": "returned a int,", "error": "KeyError: none",
}  # fmt: skip


@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempts_are_refused_in_one_sentence_that_says_why(sandbox, tmp_path, name):
    canary = tmp_path / "canary"
    with pytest.raises(RefusedCodeError, match=WHY.get(name)) as caught:
        sandbox.run(ATTEMPTS[name].replace("{canary}", str(canary)), STATE)
    said = str(caught.value)
    assert said.startswith("The reward code is refused: ") and said.endswith("0 if not.") and "\n" not in said
    assert "Refused(" not in said and len(said) < 400 and isinstance(caught.value, UserError)
    assert not canary.exists()
    assert sandbox.run(GOOD["plain"], STATE) == 1  # and the next code runs as ever


def test_time_that_is_not_spent_computing_does_not_count(sandbox):
    """A busy machine makes nothing run into a limit: what is limited is computing time."""
    source = body("return int(sum(range(1000)) > 0)")
    threads = [threading.Thread(target=lambda: [sandbox.run(source, {}) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sandbox.run(source, {}) == 1


@settings(max_examples=40)
@given(st.text(max_size=200), st.booleans())
def test_any_text_is_refused_or_runs(sandbox, text, inside):
    source = f"def reward(state):\n    return {text}" if inside else text
    try:
        assert sandbox.run(source, STATE) in (0, 1)
    except RefusedCodeError as error:
        assert error.reason


# ---- the inner wall ----------------------------------------------------------------------------------------


def inside(code: str) -> str:
    """What code says that runs in the locked process without the first wall."""
    folder = str(Path(sandbox_worker.__file__).parent)
    script = (
        f"import sys; sys.path.insert(0, {folder!r})\nimport mmap, os, socket\nfrom sandbox_worker import lock_down\n"
    )
    script += "lock_down(48 << 20)\ntry:\n" + textwrap.indent(textwrap.dedent(code).strip(), "    ")
    script += "\nexcept (OSError, MemoryError) as error:\n    os.write(1, type(error).__name__.encode())\n"
    script += "else:\n    os.write(1, b'done')\n"
    return subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, env={}).stdout


def test_the_process_has_no_rights_even_without_the_list_of_what_may_be_used():
    for code in (
        "open('/etc/passwd')", "open('/tmp/canary_of_the_sandbox', 'w')", "socket.socket()", "os.pipe()", "os.dup(1)",
        "os.listdir('/')", "x = bytearray(1 << 30)", "mmap.mmap(-1, 1 << 30)",
    ):  # fmt: skip
        assert inside(code) in ("OSError", "MemoryError"), code
    assert inside("x = bytearray(1 << 20)") == "done"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may always start processes")
def test_the_process_starts_no_others():
    assert inside("os.fork()") == "BlockingIOError"


def test_the_process_knows_nothing_of_ours(sandbox, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    sandbox.close()
    sandbox.run(GOOD["plain"], STATE)
    environment = Path(f"/proc/{sandbox._worker.pid}/environ").read_bytes()
    maps = Path(f"/proc/{sandbox._worker.pid}/maps").read_text()
    assert b"secret" not in environment and "site-packages" not in maps
    assert len(os.listdir(f"/proc/{sandbox._worker.pid}/fd")) == 3


# ---- the process -------------------------------------------------------------------------------------------


def test_copies_have_processes_of_their_own(sandbox):
    sandbox.run(GOOD["plain"], STATE)
    twin = pickle.loads(pickle.dumps(sandbox))
    assert twin.run(GOOD["plain"], STATE) == 1 and twin.limits == sandbox.limits
    assert twin._worker.pid != sandbox._worker.pid
    child = os.fork()
    if child == 0:
        os._exit(0 if sandbox.run(GOOD["plain"], STATE) == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0 and sandbox.run(GOOD["plain"], STATE) == 1
    process = twin._worker
    twin.close()
    assert process.returncode is not None and twin.run(GOOD["loop"], STATE) == 1


def test_the_shared_sandbox_stays_one():
    one = CodeReward(GOOD["plain"])
    assert pickle.loads(pickle.dumps(one)).sandbox is one.sandbox is shared_sandbox()


def test_a_sandbox_that_cannot_start_is_told(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="cannot be started here"):
        Sandbox().check(GOOD["plain"])


def test_the_process_ends_with_its_sandbox():
    made = Sandbox()
    made.run(GOOD["plain"], STATE)
    process = made._worker
    del made
    assert process.returncode is not None


def test_a_killed_process_is_replaced(sandbox):
    sandbox.run(GOOD["plain"], STATE)
    sandbox._worker.kill()
    with pytest.raises(RefusedCodeError, match="crashed"):
        sandbox.run(GOOD["plain"], STATE)
    assert sandbox.run(GOOD["plain"], STATE) == 1


def test_errors_can_be_pickled(sandbox):
    with pytest.raises(RefusedCodeError) as caught:
        sandbox.check("x")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("state", [{"x": object()}, {"x": float("nan")}, {(1, 2): 3}, "x" * (1 << 21)])
def test_states_are_plain_values(sandbox, state):
    with refused("state"):
        sandbox.run(GOOD["plain"], state)


@pytest.mark.parametrize(("name", "value"), [("seconds", 0), ("megabytes", 0), ("seconds", float("nan"))])
def test_bad_limits_are_told(name, value):
    with refused(name, "range"):
        SandboxLimits(**{name: value})


def test_many_long_sentences_of_any_script_get_through(sandbox):
    source = "def translate(state):\n    return [str(number) + 'é' * 190 for number in range(80)]\n"
    assert [len(one) for one in sandbox.translate(source, {})] == [191] * 10 + [192] * 70


def test_half_a_surrogate_pair_gets_out_neither_as_a_sentence_nor_in_a_reason(sandbox):
    with pytest.raises(RefusedCodeError, match="half a surrogate pair"):
        sandbox.translate('def translate(state):\n    return ["\\ud800"]\n', {})
    with pytest.raises(RefusedCodeError, match="KeyError") as caught:
        sandbox.run(body('return {}["\\ud800"]'), {})
    assert caught.value.reason.encode()
