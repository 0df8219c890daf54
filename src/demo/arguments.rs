//! The arguments of tool calls. Models often pass invalid values, so each error message says which values are valid.

use chrono::NaiveDate;
use serde_json::{Map, Value};

use super::timetable::{self, Crossing, PORTS, Port};

/// The maximum number of passengers of a booking.
pub(super) const MAX_PASSENGERS: u32 = 9;

/// The arguments of one call.
pub(super) struct Arguments(pub(super) Map<String, Value>);

impl Arguments {
    /// A text without surrounding white space. `None` if it is missing, null, empty or no string.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
    }

    fn is_given(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|value| !value.is_null() && value.as_str() != Some(""))
    }

    /// A port, by name or code.
    pub(super) fn port(&self, key: &str) -> Result<Option<&'static Port>, String> {
        let Some(text) = self.text(key) else { return Ok(None) };
        timetable::port(text).map(Some).ok_or_else(|| {
            let suggestion =
                timetable::nearest_port(text).map(|port| format!(" Did you mean {}?", port.name)).unwrap_or_default();
            let names: Vec<&str> = PORTS.iter().map(|port| port.name).collect();
            format!("`{key}`: no ferry of ours calls at {text:?}.{suggestion} The ports are {}.", names.join(", "))
        })
    }

    /// A date as YYYY-MM-DD.
    pub(super) fn date(&self, key: &str) -> Result<Option<NaiveDate>, String> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let date = text
            .parse()
            .map_err(|_| format!("`{key}`: {text:?} is not a date. Write it as YYYY-MM-DD, for example 2027-05-01."))?;
        Ok(Some(date))
    }

    /// A number of passengers, from 1 to [`MAX_PASSENGERS`]. Accepts `2.0` and `"2"`, which some clients send for `2`.
    pub(super) fn passengers(&self, key: &str) -> Result<Option<u32>, String> {
        if !self.is_given(key) {
            return Ok(None);
        }
        let value = self.0.get(key);
        let number = value.and_then(|value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok()));
        match number {
            Some(number) if number.fract() == 0.0 && (1.0..=f64::from(MAX_PASSENGERS)).contains(&number) => {
                Ok(Some(number as u32))
            }
            Some(number) if number > f64::from(MAX_PASSENGERS) => Err(format!(
                "`{key}`: one booking has at most {MAX_PASSENGERS} passengers. Larger groups call +44 1632 960 174."
            )),
            _ => Err(format!("`{key}`: expected a whole number from 1 to {MAX_PASSENGERS}.")),
        }
    }

    /// A crossing, by its id.
    pub(super) fn crossing(&self, key: &str) -> Result<Option<Crossing>, String> {
        let Some(id) = self.text(key) else { return Ok(None) };
        timetable::by_id(id).map(Some).ok_or_else(|| {
            format!("`{key}`: there is no crossing {id:?}. Take the `crossing_id` of a result of search_crossings, such as ARN-SKE-20270501-0740.")
        })
    }

    /// The value, or an error if it is missing.
    pub(super) fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, String> {
        value.ok_or_else(|| format!("`{key}` is missing."))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use serde_json::json;

    use super::*;

    fn arguments(value: Value) -> Arguments {
        Arguments(value.as_object().unwrap().clone())
    }

    #[test]
    fn passengers_must_be_a_whole_number_within_the_limit() {
        for (given, expected) in
            [(json!(2), Some(2)), (json!(2.0), Some(2)), (json!("3"), Some(3)), (json!(null), None), (json!(""), None)]
        {
            assert_eq!(arguments(json!({"n": given})).passengers("n").unwrap(), expected);
        }
        for wrong in [json!(0), json!(-1), json!(1.5), json!(10), json!("two"), json!([2])] {
            assert!(arguments(json!({"n": wrong})).passengers("n").is_err(), "{wrong}");
        }
    }

    #[test]
    fn error_messages_say_which_values_are_valid() {
        let wrong = arguments(json!({"from": "Arnvick", "date": "tomorrow", "id": "ARN-SKE-1"}));
        assert!(wrong.port("from").unwrap_err().contains("Did you mean Arnvik?"));
        assert!(wrong.date("date").unwrap_err().contains("YYYY-MM-DD"));
        assert!(wrong.crossing("id").unwrap_err().contains("search_crossings"));
    }
}
