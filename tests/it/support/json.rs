//! Comparison of JSON values.

use serde_json::Value as Json;

/// Whether two JSON values are equal. Numbers are compared as numbers: 2 equals 2.0.
pub(crate) fn json_equal(expected: &Json, actual: &Json) -> bool {
    match (expected.as_f64(), actual.as_f64()) {
        (Some(expected), Some(actual)) => expected == actual,
        _ => expected == actual,
    }
}
