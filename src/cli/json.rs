//! Writes JSON: the little that the statistics need.

use crate::time::Span;
use std::fmt::Write;

/// A value, as text.
pub struct Json(String);

impl Json {
    /// A number.
    pub fn number(number: u64) -> Json {
        Json(number.to_string())
    }

    /// A span as seconds, to the microsecond.
    pub fn seconds(span: Span) -> Json {
        let us = span.as_micros();
        Json(format!("{}.{:06}", us / 1_000_000, us % 1_000_000))
    }

    /// A text. What is no UTF-8 in it is replaced.
    pub fn text(bytes: &[u8]) -> Json {
        let mut json = String::from('"');
        for c in String::from_utf8_lossy(bytes).chars() {
            match c {
                '"' | '\\' => json.extend(['\\', c]),
                c if c.is_control() => write!(json, "\\u{:04x}", u32::from(c)).expect("a string takes every character"),
                c => json.push(c),
            }
        }
        Json(json + "\"")
    }

    /// A list.
    pub fn list(values: impl IntoIterator<Item = Json>) -> Json {
        let values: Vec<String> = values.into_iter().map(|Json(value)| value).collect();
        Json(format!("[{}]", values.join(",")))
    }

    /// An object, with its members in this order.
    pub fn object<N: AsRef<str>>(members: impl IntoIterator<Item = (N, Json)>) -> Json {
        let member = |(name, Json(value)): (N, Json)| format!("{}:{value}", Json::text(name.as_ref().as_bytes()).0);
        let members: Vec<String> = members.into_iter().map(member).collect();
        Json(format!("{{{}}}", members.join(",")))
    }
}

impl std::fmt::Display for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_json_has_them() {
        let list = Json::list([Json::number(7), Json::seconds(Span::from_micros(1_000_001)), Json::list([])]);
        let object = Json::object([("a \"b\"", list), ("c", Json::text(b"\\ \n \x7f \xff \xc3\xa4"))]);
        assert_eq!(object.to_string(), r#"{"a \"b\"":[7,1.000001,[]],"c":"\\ \u000a \u007f � ä"}"#);
        assert_eq!(Json::object::<&str>([]).to_string(), "{}");
    }
}
