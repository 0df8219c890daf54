"""Asks the original library what it makes of conditions.

Reads lines of JSON, {"text": ..., "document": ...}, from standard input and prints for each {"ok": true, "value": ...} or
{"ok": false, "error": ...}. Needs `pip install pypred==0.4.0`; used only to record `crates/lang/tests/data`.
"""

import collections
import collections.abc
import json
import sys

# The library was written for a Python in which this name still stood here.
collections.Callable = collections.abc.Callable

import ply.yacc  # noqa: E402
import pypred  # noqa: E402
import pypred.parser  # noqa: E402

_tables = ply.yacc.yacc


def _silent_tables(*_, **__):
    """The parser's tables, without files and without words about them."""
    return _tables(module=pypred.parser, debug=False, write_tables=False, errorlog=ply.yacc.NullLogger())


ply.yacc.yacc = _silent_tables


def verdict(text, document):
    """("holds" | "fails" | "raises", the exception's words)."""
    try:
        return ("holds" if pypred.Predicate(text).evaluate(document) else "fails"), ""
    except Exception as error:  # every exception counts the same
        return "raises", f"{type(error).__name__}: {error}"


def main():
    for line in sys.stdin:
        case = json.loads(line)
        answer, error = verdict(case["text"], case["document"])
        shown = {"ok": False, "error": error} if answer == "raises" else {"ok": True, "value": answer == "holds"}
        print(json.dumps(shown))


if __name__ == "__main__":
    main()
