from __future__ import annotations

from pathlib import Path

import pytest

from trtllm_operator.runner.report import StepError
from trtllm_operator.runner.repository import Value, arrived, escaped, mandatory, render

TEMPLATE = """\
name: "tensorrt_llm"
backend: "${triton_backend}"
max_batch_size: ${triton_max_batch_size}
# A comment with ${nothing}
model_transaction_policy { decoupled: ${decoupled_mode} }
dynamic_batching { default_queue_policy: { max_queue_size: ${max_queue_size} } }
parameters: { key: "gpt_model_path" value: { string_value: "${engine_dir}" } }
parameters: { key: "gpu_device_ids" value: { string_value: "${gpu_device_ids}" } }
parameters: { key: "max_beam_width" value: { string_value: "${max_beam_width}" } }
"""

FILL_TEMPLATE = '''
"""Reads values as the release's script does: split on commas, each part on colons, a backslash protects each time."""
import re, string, sys

def split(text, delimiter):
    parts, current, characters = [], "", iter(text)
    for character in characters:
        if character == "\\\\":
            current += next(characters)
        elif character == delimiter:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current]

_, flag, path, substitutions = sys.argv
assert flag == "-i"
text = open(path).read()
values = {"max_queue_size": 0}
for part in split(substitutions, ","):
    key, value = split(part, ":")
    assert key in text, f"key '{key}' does not exist in the file {path}."
    values[key] = value
open(path, "w").write(string.Template(text).safe_substitute(values))
'''

VALUES: dict[str, Value] = {
    "triton_backend": "tensorrtllm",
    "triton_max_batch_size": 8,
    "decoupled_mode": True,
    "engine_dir": "/store/engine-1",
}


class Templates:
    def __init__(self, root: Path) -> None:
        self.root, self.repository = root / "templates", root / "repository"
        (self.root / "tensorrt_llm").mkdir(parents=True)
        (self.root / "tensorrt_llm" / "config.pbtxt").write_text(TEMPLATE)
        self.script = root / "fill_template.py"
        self.script.write_text(FILL_TEMPLATE)

    def render(self, **values: object) -> str:
        render(self.root, self.script, {"tensorrt_llm": {**VALUES, **values}}, self.repository)  # type: ignore[dict-item]
        return (self.repository / "tensorrt_llm" / "config.pbtxt").read_text()


@pytest.fixture
def templates(tmp_path: Path) -> Templates:
    return Templates(tmp_path)


def test_values_arrive_typed(templates: Templates) -> None:
    text = templates.render()
    assert "max_batch_size: 8\n" in text
    assert "decoupled: true " in text
    assert 'string_value: "/store/engine-1"' in text
    assert (templates.repository / "tensorrt_llm" / "1").is_dir(), "Triton needs a version directory, though empty"


@pytest.mark.parametrize("value", ["0,1;2", "http://host:80/a,b", "a:b", ":,"])
def test_what_the_script_splits_on_arrives_unharmed(templates: Templates, value: str) -> None:
    assert f'string_value: "{value}"' in templates.render(gpu_device_ids=value)


def test_escaping() -> None:
    assert escaped(True) == "true"
    assert escaped("0,1") == r"0\,1"
    assert escaped("a:b") == r"a\\:b"


def test_an_optional_value_left_out_keeps_the_default_of_the_backend(templates: Templates) -> None:
    assert '"${max_beam_width}"' in templates.render()


def test_a_mandatory_value_left_out_is_told(templates: Templates) -> None:
    values = {name: value for name, value in VALUES.items() if name != "decoupled_mode"}
    with pytest.raises(StepError, match="needs decoupled_mode"):
        render(templates.root, templates.script, {"tensorrt_llm": values}, templates.repository)


def test_a_value_this_release_has_no_place_for_is_told(templates: Templates) -> None:
    with pytest.raises(StepError, match=r"has no kv_cache_typo; it has .*engine_dir") as caught:
        templates.render(kv_cache_typo="x")
    assert caught.value.reason == "TemplateMismatch"


def test_a_value_that_would_break_the_file_is_refused(templates: Templates) -> None:
    with pytest.raises(StepError, match="cannot hold"):
        templates.render(engine_dir='/store"} } parameters {')


def test_a_template_the_image_lacks_is_told(templates: Templates) -> None:
    with pytest.raises(StepError, match=r"no template .*tensorrt_llm_bls"):
        render(templates.root, templates.script, {"tensorrt_llm_bls": {}}, templates.repository)


def test_a_script_that_writes_something_else_is_caught(templates: Templates) -> None:
    templates.script.write_text(FILL_TEMPLATE + "\nopen(path, 'a').write('surplus')\n")
    with pytest.raises(StepError, match="wrote other values"):
        templates.render()


def test_a_second_rendering_leaves_nothing_of_the_first(templates: Templates) -> None:
    templates.render()
    (templates.repository / "old").mkdir()
    templates.render()
    assert [path.name for path in templates.repository.iterdir()] == ["tensorrt_llm"]


def test_mandatory_is_what_stands_outside_quotes_and_comments() -> None:
    assert mandatory(TEMPLATE) == ["decoupled_mode", "max_queue_size", "triton_max_batch_size"]


def test_reading_back_takes_any_text_where_no_value_was_given() -> None:
    assert arrived("a ${x} b ${y} c", {"x": 1}, "a 1 b 77 c")
    assert not arrived("a ${x} b ${y} c", {"x": 1}, "a 2 b 77 c")
