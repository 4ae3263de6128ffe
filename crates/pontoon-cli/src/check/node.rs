//! A JSON value with its place, read as something; what is wrong is said with the place.

use std::{error, fmt};

use serde_json::{Map, Value};

use super::json::{self, Step};

/// Why a text is not a scenario.
#[derive(Debug)]
pub(super) struct Fault {
    line: usize,
    path: Vec<Step>,
    what: String,
}

impl Fault {
    /// The text is not JSON.
    pub(super) fn syntax(error: &serde_json::Error) -> Self {
        Self { line: error.line(), path: Vec::new(), what: format!("expected JSON: {error}") }
    }

    /// Finds the line, which a value does not know.
    pub(super) fn in_text(mut self, text: &[u8]) -> Self {
        self.line = json::line_of(text, &self.path);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        for (at, step) in self.path.iter().enumerate() {
            match step {
                Step::Item(item) => write!(f, "[{item}]")?,
                Step::Key(key) => {
                    let dot = if at == 0 { "" } else { "." };
                    write!(f, "{dot}{}", key.escape_debug())?;
                }
            }
        }
        let colon = if self.path.is_empty() { "" } else { ": " };
        write!(f, "{colon}{}", self.what)
    }
}

impl error::Error for Fault {}

/// A value and the way to it.
#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    value: &'a Value,
    path: Vec<Step>,
}

impl<'a> Node<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self { value, path: Vec::new() }
    }

    /// What was expected here instead of what is.
    pub(super) fn expected(&self, what: impl fmt::Display) -> Fault {
        let mut found = self.value.to_string();
        if found.chars().count() > 60 {
            found = found.chars().take(57).chain("...".chars()).collect();
        }
        Fault { line: 0, path: self.path.clone(), what: format!("expected {what}, found {found}") }
    }

    pub(super) fn text(&self) -> Result<&'a str, Fault> {
        self.value.as_str().ok_or_else(|| self.expected("a string"))
    }

    pub(super) fn number(&self) -> Result<u64, Fault> {
        self.value.as_u64().ok_or_else(|| self.expected("a whole number from 0 to 2^64-1"))
    }

    pub(super) fn flag(&self) -> Result<bool, Fault> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    pub(super) fn list(&self) -> Result<Vec<Self>, Fault> {
        let list = self.value.as_array().ok_or_else(|| self.expected("a list"))?;
        Ok(list.iter().enumerate().map(|(at, value)| self.child(value, Step::Item(at))).collect())
    }

    pub(super) fn object(&self) -> Result<Object<'a>, Fault> {
        let map = self.value.as_object().ok_or_else(|| self.expected("an object"))?;
        Ok(Object { node: self.clone(), map })
    }

    fn child(&self, value: &'a Value, step: Step) -> Self {
        let mut path = self.path.clone();
        path.push(step);
        Self { value, path }
    }
}

/// An object, field by field.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    node: Node<'a>,
    map: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// Refuses keys other than these.
    pub(super) fn only(&self, keys: &[&str]) -> Result<(), Fault> {
        for (key, value) in self.map {
            if !keys.contains(&key.as_str()) {
                let node = self.node.child(value, Step::Key(key.clone()));
                return Err(Fault {
                    line: 0,
                    path: node.path,
                    what: format!("expected no such key, only {}", keys.join(", ")),
                });
            }
        }
        Ok(())
    }

    pub(super) fn optional(&self, key: &str) -> Option<Node<'a>> {
        self.map.get(key).map(|value| self.node.child(value, Step::Key(key.to_owned())))
    }

    pub(super) fn required(&self, key: &str) -> Result<Node<'a>, Fault> {
        self.optional(key).ok_or_else(|| self.node.expected(format_args!("the key {key:?}")))
    }

    /// The items of a list that may be left out.
    pub(super) fn items(&self, key: &str) -> Result<Vec<Node<'a>>, Fault> {
        self.optional(key).map_or(Ok(Vec::new()), |node| node.list())
    }
}
