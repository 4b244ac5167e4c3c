"""The house: one word for one idea, one home for one fact, no way round."""

from pathlib import Path

import pytest
from house import House, measured


@pytest.fixture(scope="module")
def house() -> House:
    return measured()


def test_no_two_classes_share_a_name(house):
    assert not house.class_twice


def test_one_letter_names_are_for_formulas(house):
    assert house.one_letter < 0.04


def test_engines_are_named_in_their_folders_only(house):
    assert not house.engine_names


def test_no_modules_import_each_other(house):
    assert not house.circles


def test_the_question_is_typed_whole(house):
    assert not house.untyped


def test_the_measures_see_what_they_look_for(tmp_path: Path):
    package = tmp_path / "kvroom"
    (package / "engines").mkdir(parents=True)
    (package / "scenario").mkdir()
    (package / "engines" / "registry.json").write_text('{"engines": {"vllm": {}}}')
    (package / "one.py").write_text("from kvroom.two import Twin\n\nx = found = Twin\n")
    (package / "two.py").write_text(
        'def late():\n    from kvroom.one import x\n\n    return x == "vllm"\n\n\nclass Twin:\n    pass\n'
    )
    (package / "scenario" / "three.py").write_text("class Twin:\n    keys: Any\n")
    house = measured(package)
    assert list(house.class_twice) == ["Twin"]
    assert house.circles == [["kvroom.one", "kvroom.two"]]
    assert house.engine_names == ["kvroom.two:4"]
    assert house.untyped == ["kvroom.scenario.three:2"]
    assert house.one_letter > 0.3
    assert house.vague > 0.1
