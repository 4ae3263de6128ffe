//! What is said in the log.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// The lines of a log that warn: each its message, and its fields by name.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<Line>>>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) message: String,
    fields: Vec<(&'static str, String)>,
}

impl Line {
    /// A field, as it is written; empty if there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        let field = self.fields.iter().find(|field| field.0 == name);
        field.map_or("", |(_, value)| value)
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}"))),
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "pontoon::smc" && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Lines {
    /// The log of this process from now on.
    pub(crate) fn of_all() -> Self {
        let lines = Self::default();
        tracing::subscriber::set_global_default(lines.clone()).unwrap();
        lines
    }

    /// Those whose messages have that in them.
    pub(crate) fn with(&self, text: &str) -> Vec<Line> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.message.contains(text)).cloned().collect()
    }
}
