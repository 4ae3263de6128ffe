//! JSON in which no key is twice, and the line on which a value stands.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// One step from a value to one in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Item(usize),
}

/// Parses a text of which every object has each key once.
pub(super) fn parse(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice::<Strict>(text).map(|strict| strict.0)
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Self)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} is there twice")));
            }
            let Strict(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// The line, from 1, on which the value at the end of the path begins, in a text that is JSON.
pub(super) fn line_of(text: &[u8], path: &[Step]) -> usize {
    let mut scan = Scan { text, at: 0 };
    scan.space();
    for step in path {
        if !scan.enter(step) {
            break;
        }
    }
    1 + text[..scan.at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count()
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Goes from a value to one in it, if it has it.
    fn enter(&mut self, step: &Step) -> bool {
        let start = self.at;
        self.at += 1;
        for number in 0.. {
            self.space();
            if matches!(self.peek(), None | Some(b'}' | b']')) {
                break;
            }
            let found = match step {
                Step::Item(wanted) => number == *wanted,
                Step::Key(wanted) => {
                    let key = self.at;
                    self.skip();
                    let key = serde_json::from_slice::<String>(&self.text[key..self.at]);
                    self.space();
                    self.at += 1;
                    self.space();
                    key.is_ok_and(|key| key == *wanted)
                }
            };
            if found {
                return true;
            }
            self.skip();
            self.space();
            if self.peek() == Some(b',') {
                self.at += 1;
            }
        }
        self.at = start;
        false
    }

    /// Goes past one value.
    fn skip(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => self.skip_text(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' | b',' if depth == 0 => return,
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                _ => {
                    self.at += 1;
                    if depth == 0 && self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
                        return;
                    }
                    continue;
                }
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn skip_text(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_on_its_line() {
        let text = b"{\n \"a\": [1,\n  {\"b\\n\": \"]\",\n \"c\":\n 2}],\n \"d\": 3\n}";
        let key = |key: &str| Step::Key(key.to_owned());
        for (path, line) in [
            (vec![], 1),
            (vec![key("a")], 2),
            (vec![key("a"), Step::Item(1)], 3),
            (vec![key("a"), Step::Item(1), key("c")], 5),
            (vec![key("d")], 6),
            (vec![key("a"), Step::Item(7)], 2),
        ] {
            assert_eq!(line_of(text, &path), line, "{path:?}");
        }
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused() {
        let error = parse(b"{\"a\": 1,\n\"a\": 2}").expect_err("twice");
        assert_eq!(error.line(), 2);
    }
}
