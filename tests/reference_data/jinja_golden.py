"""Writes what Jinja2 makes of the cases in `jinja_cases.json`: one JSON object per line on standard output.

    pip install jinja2==3.1.6
    python3 tests/oracle/jinja_golden.py > crates/lang/tests/data/jinja.jsonl

A case is a list [template] or [template, context]; an error of Jinja2 is written as `"error"` in place of the text.
Undefined names print nothing and chain, the way the CALM format's templates are written against.
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
    except Exception as problem:  # every class of failure counts as one answer: "error"
        line["error"] = type(problem).__name__
    print(json.dumps(line, ensure_ascii=False))
