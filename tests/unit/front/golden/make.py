"""Renders conversations with Hugging Face transformers, as a source outside of this project.

Made once: pip install transformers==5.24.0 jinja2, then
`python tests/unit/front/golden/make.py DIRECTORY_OF_SMOLLM2 > tests/unit/front/golden/chat_templates.json`.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

BUSY = """\
{%- if messages[0]['role'] == 'system' %}
    {%- set first = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set first = '' %}
{%- endif %}
{{- bos_token }}
{%- for message in messages %}
    {%- if message['content'] | length == 0 %}
        {%- continue %}
    {%- endif %}
    {%- if loop.index0 >= 6 %}
        {%- break %}
    {%- endif %}
    {{- '[' + message['role'] + '] ' + message | tojson + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '[assistant] ' + first }}
{%- endif %}
"""
WORDS = [
    "Hello",
    "größer",
    "日本",
    "🙂",
    "a <b> & 'c'",
    '"quoted"',
    "line\nbreak",
    "  spaces  ",
    "{{ x }}",
    "",
    "\\n",
    "1.5",
]
SPECIAL = {"bos_token": "<s>"}


def conversations(number: int) -> list[list[dict[str, str]]]:
    """Made of the words above, always the same."""
    source = random.Random(20261201)  # noqa: S311 - the same each time
    out = []
    for _ in range(number):
        messages = []
        if source.random() < 0.4:
            messages.append({"role": "system", "content": " ".join(source.choices(WORDS, k=3))})
        for turn in range(source.randint(1, 9)):
            text = " ".join(source.choices(WORDS, k=source.randint(0, 5)))
            messages.append({"role": "assistant" if turn % 2 else "user", "content": text})
        out.append(messages)
    return out


def main() -> None:
    own = json.loads((Path(sys.argv[1]) / "tokenizer_config.json").read_text())["chat_template"]
    cases = []
    for number, messages in enumerate(conversations(200)):
        name = "busy" if number % 2 else "smollm2"
        generation = number % 3 != 0
        rendered, _ = render_jinja_template(
            [messages],
            chat_template=BUSY if name == "busy" else own,
            add_generation_prompt=generation,
            **SPECIAL,
        )
        cases.append({"template": name, "messages": messages, "generation": generation, "rendered": rendered[0]})
    made = {"transformers": transformers.__version__, "templates": {"smollm2": own, "busy": BUSY}, "cases": cases}
    json.dump(made, sys.stdout, ensure_ascii=True, indent=None, separators=(",", ":"))


if __name__ == "__main__":
    main()
