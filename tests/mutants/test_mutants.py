"""The sabotages of `make mutants`, which takes half an hour: that each of them can still be made."""

from tests.mutants import __main__ as sabotage


def test_each_sabotage_fits_the_code():
    """Its text stands in its file exactly once, what replaces it is another one, and there are tests to notice it."""
    files = {file: (sabotage.ROOT / file).read_text(encoding="utf-8") for file, *_ in sabotage.MUTANTS}

    assert [(file, law) for file, old, _, law in sabotage.MUTANTS if files[file].count(old) != 1] == []
    assert [(file, law) for file, old, new, law in sabotage.MUTANTS if old == new or not law] == []
    assert [file for file in files if not sabotage.tests_of(file, sabotage.ROOT)] == []
