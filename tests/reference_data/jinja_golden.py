"""Renders the templates of `jinja_cases.json` with Jinja2. Prints one JSON object per line.

    pip install jinja2==3.1.6
    python3 tests/reference_data/jinja_golden.py > crates/lang/tests/data/jinja.jsonl

A case is a list [template] or [template, context]. If Jinja2 raises an error, the object has `error` instead of `text`.
Undefined names are rendered as empty text, and so are their attributes (`ChainableUndefined`), as in Rasa.
"""

import json
import pathlib

import jinja2

HERE = pathlib.Path(__file__).parent


def to_json_escaped_string(value):
    return json.dumps(value, ensure_ascii=False)


env = jinja2.Environment(undefined=jinja2.ChainableUndefined)
env.filters["to_json_escaped_string"] = to_json_escaped_string

for case in json.loads((HERE / "jinja_cases.json").read_text("utf-8")):
    template, context = case[0], case[1] if len(case) > 1 else {}
    line = {"template": template, "context": context}
    try:
        line["text"] = env.from_string(template).render(**context)
    except Exception as error:
        line["error"] = type(error).__name__
    print(json.dumps(line, ensure_ascii=False))
