"""The script that describes the code's texture counts what it says."""

import pytest
import texture

PACKED = '''
def f(x):
    """A line."""
    a, b = x, 1
    (c, d), e = x, 2
    g, h = divmod(a, b)
    return [y if y else 0 for y in (a, b)]
'''


def test_statements_assignments_expressions_and_comprehensions_are_counted():
    counted = texture.Texture()
    counted.add(PACKED)
    assert counted.statements == 6  # the docstring and the function are two of them
    assert counted.parallel == 2  # what a function returns may have several names
    assert counted.conditional == 1
    assert counted.comprehensions == 1
    assert counted.per_hundred(counted.parallel) == pytest.approx(100 / 3)
    assert max(counted.lengths) == len("    return [y if y else 0 for y in (a, b)]")


def test_long_functions_are_named_and_docstrings_do_not_make_them_long():
    body = "    x = 1\n" * texture.SCREEN
    documented = '    """' + "\n\n" * texture.SCREEN + '    """\n'
    counted = texture.Texture()
    counted.add(
        f"def long(x):\n{body}\n\ndef short():\n{documented}    return 1\n", "a.py"
    )
    assert counted.long_functions == [f"a.py:long ({texture.SCREEN + 1})"]


def test_the_table_has_a_row_for_the_module_and_one_for_scikit_learn(capsys):
    texture.main(["--files"])
    printed = capsys.readouterr().out
    for name in ("cells.py", "study/tables.py", "cfhelpers ", "scikit-learn"):
        assert f"\n{name}" in printed
