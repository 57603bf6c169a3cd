"""Functions of source code, told apart by what they do and not by what their variables are called."""

import pyarrow as pa
import pytest

from ops.hashing.columns import TextColumn
from ops.hashing.functions import MAX_BODY_TOKENS, MAX_DEPTH, column_functions


def functions_of(text: str, least: int = 8) -> list[tuple[int, str]]:
    """Hash and source of every function."""
    column = TextColumn.of(pa.array([text]))
    _, hashes, starts, ends = column_functions(column.data, column.offsets, least)
    return [(value, text.encode()[a:b].decode()) for value, a, b in zip(hashes.tolist(), starts, ends, strict=True)]


def hashes_of(text: str) -> list[int]:
    return [value for value, _ in functions_of(text)]


PYTHON = '''
def has_close(numbers, threshold: float) -> bool:
    """Doc string."""
    for i, first in enumerate(numbers):
        for j, second in enumerate(numbers):
            if i != j and abs(first - second) < threshold:  # near
                return True
    return False
'''
RENAMED = """
    async def near(xs, t):
        for a, left in enumerate(xs):
                for b, right in enumerate(xs):

                        if a != b and abs(left
                            - right) < t: return True
        return False
"""
C = """
bool has_close_elements(vector<float> numbers, float threshold){
    int i,j;
    for (i=0;i<numbers.size();i++)
    for (j=i+1;j<numbers.size();j++)
    if (abs(numbers[i]-numbers[j])<threshold) /* near */
    return true;
    return false;
}
"""
SCRIPT = "const f = (numbers, threshold) => {\n  let i = 0\n  while (i < numbers.length) { i += threshold; log(i) }\n  return i // end\n}\n"


def test_names_comments_doc_strings_and_layout_do_not_count_in_python() -> None:
    [(one, source)] = functions_of(PYTHON)
    assert source.startswith("def has_close")
    assert source.endswith("return False")
    assert hashes_of(RENAMED) == [one]
    assert hashes_of(PYTHON.replace("    ", "\t")) == [one]


@pytest.mark.parametrize(
    ("old", "new"),
    [("enumerate", "sorted"), ("< threshold", "> threshold"), ("return True", "return False"), ("i != j", "i != i"), ("abs(", "")],
)
def test_what_a_python_function_does_counts(old: str, new: str) -> None:
    assert hashes_of(PYTHON.replace(old, new, 1)) != hashes_of(PYTHON)


@pytest.mark.parametrize("code", [C, SCRIPT], ids=["C++", "JavaScript"])
def test_names_comments_and_layout_do_not_count_between_braces(code: str) -> None:
    [(one, _)] = functions_of(code)
    renamed = (
        code.replace("numbers", "xs").replace("threshold", "limit").replace("\n", " \n\n  ").replace("// end", "").replace("/* near */", "")
    )
    assert hashes_of(renamed) == [one]
    assert hashes_of(code.replace("return", "yield", 1)) != [one]


def test_a_recursive_function_may_be_renamed() -> None:
    code = "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)\n"
    assert hashes_of(code) == hashes_of(code.replace("fib", "rabbits")) != []


def test_control_blocks_are_no_functions() -> None:
    assert functions_of("if (a) { b = c + d * e - f; g = h; }\nwhile (x(1)) { y = z + 1; w = v * 2; }") == []


def test_methods_and_nested_functions_are_functions_of_their_own() -> None:
    code = (
        "class A:\n    def one(self, x):\n        def two(y):\n            return y * y + self.z - 1\n        return two(x) + two(x + 1)\n"
    )
    assert [source.split("(")[0] for _, source in functions_of(code)] == ["def one", "def two"]


def test_small_bodies_are_left_out() -> None:
    assert functions_of(PYTHON, least=200) == []
    assert functions_of("def f(x):\n    return x\n") == []


def test_prose_around_a_function_does_not_hide_it() -> None:
    [value] = hashes_of(PYTHON)
    assert hashes_of(f"It's a trap: 1) don't (ever\n```python{PYTHON}```\nand so on {{ that") == [value]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def",
        "def f(",
        "def f(x",
        "def f(x):",
        "f() {",
        "}}}}((((",
        "{" * 500,
        "'" * 99,
        '"""',
        "/*",
        "//",
        "\\",
        "`",
        "def f():" * 300,
        "f(){" * 300,
    ],
)
def test_broken_code_is_read_to_its_end(text: str) -> None:
    functions_of(text)


def test_deep_nesting_and_long_bodies_cost_no_more_than_their_bounds() -> None:
    body = "a = b + c - d * e;"
    deep = "f(x) {" * 40 + body + "}" * 40
    assert len(functions_of(deep)) == MAX_DEPTH
    assert functions_of("f(x) {" + body * MAX_BODY_TOKENS + "}") == []
