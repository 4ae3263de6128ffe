//! As much of JSON (RFC 8259) as a dump needs.
//!
//! Written here, since a JSON library among the dependencies brings comparisons of its values with
//! numbers and strings, which keep types in users' code from being inferred.

use std::fmt::{self, Write as _};

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Json {
    Null,
    Number(u64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    pub(super) fn object(members: impl IntoIterator<Item = (&'static str, Json)>) -> Self {
        Self::Object(members.into_iter().collect())
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Json {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Json {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_string())
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, T::into)
    }
}

impl FromIterator<Json> for Json {
    fn from_iter<I: IntoIterator<Item = Json>>(values: I) -> Self {
        Self::List(values.into_iter().collect())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => quote(text, f),
            Self::List(values) => {
                f.write_char('[')?;
                for (at, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if at == 0 { "" } else { ", " })?;
                }
                f.write_char(']')
            }
            Self::Object(members) => {
                f.write_char('{')?;
                for (at, (key, value)) in members.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { ", " })?;
                    quote(key, f)?;
                    write!(f, ": {value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

fn quote(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(f, "\\{character}")?,
            '\n' => f.write_str("\\n")?,
            control if control < ' ' => write!(f, "\\u{:04x}", u32::from(control))?,
            other => f.write_char(other)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    proptest! {
        #[test]
        fn whatever_is_written_is_read_the_same(
            text in "[\\x00-\\x7f]*|\\PC*",
            number: u64,
            none: Option<u32>,
        ) {
            let list = Json::from_iter([number.into(), Json::object([]), Json::from_iter([])]);
            let written = Json::object([
                ("text", (&*text).into()), ("list", list), ("none", none.into()),
            ]);
            let written = written.to_string();
            prop_assert!(!written.contains('\n'));
            let read: Value = serde_json::from_str(&written).unwrap();
            prop_assert_eq!(read, json!({"text": text, "list": [number, {}, []], "none": none}));
        }
    }
}
