#!/usr/bin/env python3
"""STAND-IN for fill_template.py of TensorRT-LLM 1.2.1: fills `${...}` placeholders of a config.pbtxt.

Substitutions are `key:value,key:value`; a backslash takes the next character as it is. What is not given stays as it
is, except that the two queue settings default to 0. An unknown key is an AssertionError.
"""

import argparse
from pathlib import Path
from string import Template

DEFAULTS = {"max_queue_size": "0", "max_queue_delay_microseconds": "0"}


def split_unescaped(text: str, separator: str) -> list[str]:
    """Parts between unescaped separators, with the backslashes removed."""
    parts = [""]
    characters = iter(text)
    for character in characters:
        if character == "\\":
            parts[-1] += next(characters, "")
        elif character == separator:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def fill(template: str, substitutions: str, file_path: str) -> str:
    """The filled text.

    Raises:
        AssertionError: a key that does not occur in the template.
        ValueError: a part that is not `key:value`.
    """
    values = dict(DEFAULTS)
    # As in the original, each level removes one layer of backslashes: a `:` inside a value needs two.
    for part in split_unescaped(substitutions, ","):
        key, value = split_unescaped(part, ":")
        assert key in template, f"key '{key}' does not exist in the file {file_path}."
        values[key] = value
    return Template(template).safe_substitute(values)


def main() -> None:
    parser = argparse.ArgumentParser(epilog="STAND-IN for NVIDIA's fill_template.py.")
    parser.add_argument("file_path", help="config.pbtxt to fill")
    parser.add_argument("substitutions", help="key:value,key:value,...")
    parser.add_argument("--in_place", "-i", action="store_true", help="write the file instead of printing it")
    args = parser.parse_args()
    path = Path(args.file_path)
    text = fill(path.read_text(), args.substitutions, args.file_path)
    if args.in_place:
        path.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
