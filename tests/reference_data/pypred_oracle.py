"""Evaluates conditions with pypred, Rasa's condition library.

Reads lines of JSON, {"text": ..., "document": ...}, from standard input. Prints for each {"ok": true, "value": ...} or
{"ok": false, "error": ...}. Needs `pip install pypred==0.4.0`. `condition_cases.py` uses it to record `crates/lang/tests/data`.
"""

import collections
import collections.abc
import json
import sys

# pypred needs this name, which Python 3.10 removed.
collections.Callable = collections.abc.Callable

import ply.yacc  # noqa: E402
import pypred  # noqa: E402
import pypred.parser  # noqa: E402

_tables = ply.yacc.yacc


def _silent_tables(*_, **__):
    """Generates the tables of the parser without files and log messages."""
    return _tables(module=pypred.parser, debug=False, write_tables=False, errorlog=ply.yacc.NullLogger())


ply.yacc.yacc = _silent_tables


def verdict(text, document):
    """Evaluates a condition. Returns ("holds" | "fails" | "raises", the text of the exception)."""
    try:
        return ("holds" if pypred.Predicate(text).evaluate(document) else "fails"), ""
    except Exception as error:
        return "raises", f"{type(error).__name__}: {error}"


def main():
    for line in sys.stdin:
        case = json.loads(line)
        answer, error = verdict(case["text"], case["document"])
        shown = {"ok": False, "error": error} if answer == "raises" else {"ok": True, "value": answer == "holds"}
        print(json.dumps(shown))


if __name__ == "__main__":
    main()
