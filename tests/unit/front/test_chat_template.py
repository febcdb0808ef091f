"""Conversations are rendered as Hugging Face transformers renders them; a template is a stranger's program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trtllm_operator.front.chat_template import ChatTemplate
from trtllm_operator.front.errors import RequestError

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "chat_templates.json").read_text())
USER = [{"role": "user", "content": "hello"}]


def test_200_conversations_as_transformers_renders_them() -> None:
    templates = {name: ChatTemplate(source, {"bos_token": "<s>"}) for name, source in GOLDEN["templates"].items()}
    assert len(GOLDEN["cases"]) == 200
    for case in GOLDEN["cases"]:
        made = templates[case["template"]].render(case["messages"], add_generation_prompt=case["generation"])
        assert made == case["rendered"], case["messages"]


def test_a_template_s_own_refusal_reaches_the_client() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(RequestError, match="roles must alternate") as refused:
        template.render(USER)
    assert (refused.value.status, refused.value.param) == (400, "messages")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append('x') }}",
        "{{ messages[0].update(role='system') }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ 1 / 0 }}",
        "{{ messages[0].nothing.more }}",
        "{% for i in range(10 ** 12) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_hostile_template_ends_in_a_refusal_and_changes_nothing(source: str) -> None:
    messages = [dict(USER[0])]
    with pytest.raises(RequestError, match="chat template"):
        ChatTemplate(source, {}).render(messages)
    assert messages == USER


def test_a_template_that_cannot_be_compiled_is_named() -> None:
    with pytest.raises(ValueError, match="cannot be compiled"):
        ChatTemplate("{% if %}", {})
